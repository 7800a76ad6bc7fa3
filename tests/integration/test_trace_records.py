"""Records of a job for `indexmill trace`."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from local.trace.database import load
from tests.support.job_stores import postgres_jobs
from tests.support.jobs import scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.unit.orchestrator.test_waiting_message import failed_try


@pytest.fixture
def pipeline(database_url: str) -> Iterator[OrchestratorHarness]:
    with postgres_jobs(database_url) as jobs:
        yield OrchestratorHarness(jobs.store)


def test_the_last_error_is_that_of_the_current_stage(
    pipeline: OrchestratorHarness, database_url: str
) -> None:
    job_id = pipeline.submit()
    failed_try(pipeline, job_id, 90.0)
    assert load(database_url, job_id[:8]).job["last_error"]["code"] == "dns_error"
    pipeline.deliver(scraped(job_id))
    assert load(database_url, job_id).job["last_error"] is None


def test_a_job_that_was_not_started_comes_with_the_state_of_its_site(
    pipeline: OrchestratorHarness, database_url: str
) -> None:
    job_id = pipeline.submit()
    assert load(database_url, job_id).job["site_failing"] is None
    with psycopg.connect(database_url) as database:
        database.execute("UPDATE jobs SET site = 'example.com' WHERE id = %s", [job_id])
        database.execute(
            "INSERT INTO sites (site, full_at, last_at, failing_until, due_at) "
            "VALUES ('example.com', now(), now(), now() + interval '1 min', now() + interval '2 min')"
        )
    found = load(database_url, job_id)
    assert found.job["site_failing"]
    assert 60 < (found.job["site_at"] - found.read_at).total_seconds() <= 120
