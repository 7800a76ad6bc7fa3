"""Every admitted job is counted once, by the function that admitted it: the alarm on loops reads that."""

from __future__ import annotations

import pytest

from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from local.metrics import emf
from tests.support.jobs import chunked, embedded, failed, scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.support.sweeper import SweeperHarness
from tests.twins.queues import InMemoryQueue

NAME = "jobs_admitted_total"
FUNCTION = "indexmill-OrchestratorResults"


def counted(captured: pytest.CaptureFixture[str]) -> int:
    """Return how many jobs were counted as admitted since the last call."""
    found = [
        measured
        for line in captured.readouterr().out.splitlines()
        for measured in emf.read(line)
        if measured.name == NAME
    ]
    assert {each.dimensions for each in found} <= {(("function", FUNCTION), ("service", "test"))}
    return int(sum(sum(each.values) for each in found))


@pytest.fixture
def p(monkeypatch: pytest.MonkeyPatch) -> SweeperHarness:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", FUNCTION)
    return SweeperHarness()


def test_a_job_is_counted_when_it_is_admitted_and_not_at_its_later_stages(
    p: SweeperHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = p.submit_many(3)
    assert counted(capsys) == 3
    for job_id in jobs:
        p.deliver(scraped(job_id))
        p.deliver(chunked(job_id), embedded(job_id, chunk_count=1))
    assert counted(capsys) == 0


@pytest.fixture
def on_postgres(p: SweeperHarness, database_url: str) -> OrchestratorHarness:
    return OrchestratorHarness(JobStore(Database(database_url), JobLimits(window=2)))


def test_a_waiting_job_is_counted_by_what_admits_it(
    on_postgres: OrchestratorHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = on_postgres.submit_many(3)
    assert counted(capsys) == 2
    on_postgres.deliver(failed(first))
    assert counted(capsys) == 1


def test_a_retry_is_an_admission_of_its_own(
    on_postgres: OrchestratorHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    job_id = on_postgres.submit()
    on_postgres.deliver(failed(job_id))
    assert counted(capsys) == 1
    on_postgres.retry_all(include_permanent=True)
    assert counted(capsys) == 1


def test_what_the_sweeper_sends_again_is_not_counted(
    p: SweeperHarness, capsys: pytest.CaptureFixture[str]
) -> None:
    p.scrape.unavailable = True
    p.submit()
    assert counted(capsys) == 1
    p.scrape.unavailable = False
    p.clock.tick(60)
    assert p.sweep()["leftovers"] == 1
    assert isinstance(p.scrape, InMemoryQueue)
    assert len(p.scrape.bodies) == 1
    # Lost from the queue, and sent again.
    p.scrape.bodies.clear()
    p.tick(40)
    assert p.scrape.bodies
    assert counted(capsys) == 0
