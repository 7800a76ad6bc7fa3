"""History of a job on Postgres, where its hash chain is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import JobHistory
from indexmill.orchestrator.queries.jobs import ReadHistory
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from tests.support.jobs import CALLER, applied, failed, new_job, scraped, submitted


@pytest.fixture
def jobs(database_url: str) -> Iterator[JobStore]:
    database = Database(database_url)
    yield JobStore(database)
    database.close()


def history(jobs: JobStore, caller_id: str, job_id: str) -> JobHistory | None:
    return jobs.read(lambda tx: tx.history(caller_id, job_id))


def a_job_that_failed(jobs: JobStore) -> str:
    job = new_job()
    submitted(jobs, job, new_job("https://example.com/other"))
    reported: Any = {"tries": 2, "worker": "worker-1", "elapsed_ms": 40}
    results = [
        scraped(job.job_id).model_copy(update=reported),
        failed(job.job_id, "chunking", "empty_content"),
    ]
    applied(jobs, *results)
    return job.job_id


def test_every_transition_is_returned_in_order_and_sealed(jobs: JobStore) -> None:
    job_id = a_job_that_failed(jobs)
    found = history(jobs, CALLER.caller_id, job_id)
    assert found is not None
    assert [(each.from_status, each.to_status, each.attempt) for each in found.entries] == [
        (None, "pending", 1),
        ("pending", "scraping", 1),
        ("scraping", "chunking", 1),
        ("chunking", "failed", 1),
    ]
    assert [each.prev_hash for each in found.entries] == ["", *(each.hash for each in found.entries[:-1])]
    assert found.intact


@pytest.mark.shows("S1")
def test_a_history_is_its_owners_only(jobs: JobStore) -> None:
    job_id = a_job_that_failed(jobs)
    assert history(jobs, "somebody-else", job_id) is None
    assert history(jobs, CALLER.caller_id, "no-such-job") is None
    for unknown in ("no-such-job", "00000000-0000-4000-8000-000000000000", "\0"):
        with pytest.raises(CallerError) as refused:
            ReadHistory(jobs)(CALLER, unknown)
        assert refused.value.code == "not_found"


@pytest.fixture
def real(database_url: str) -> Iterator[tuple[Database, str]]:
    database = Database(database_url)
    yield database, a_job_that_failed(JobStore(database))
    database.close()


def test_an_entry_says_who_did_what_for_how_long(real: tuple[Database, str]) -> None:
    database, job_id = real
    found = history(JobStore(database), CALLER.caller_id, job_id)
    assert found is not None
    entry = found.entries[2]
    assert (entry.cause, entry.tries, entry.worker, entry.elapsed_ms) == (
        *("scraping success", 2, "worker-1", 40),
    )
    assert entry.job_type == "index"
    assert entry.waited_ms == 0 or (entry.waited_ms or 0) > 0
    assert found.entries[0].waited_ms is None
    assert found.entries[3].error is not None
    assert found.entries[3].error.code == "empty_content"
    json.loads(found.model_dump_json())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE job_history SET cause = 'nothing' WHERE job_id = %s AND to_status = 'scraping'",
        "UPDATE job_history SET hash = repeat('0', 64) WHERE job_id = %s AND to_status = 'failed'",
        "DELETE FROM job_history WHERE job_id = %s AND to_status = 'chunking'",
        "DELETE FROM job_history WHERE job_id = %s AND to_status = 'failed'",
    ],
)
def test_a_change_behind_the_databases_back_is_detected(real: tuple[Database, str], change: str) -> None:
    database, job_id = real
    connection = database.connection()
    connection.execute("ALTER TABLE job_history DISABLE TRIGGER append_only")
    assert connection.execute(change.encode(), (job_id,)).rowcount == 1
    found = history(JobStore(database), CALLER.caller_id, job_id)
    assert found is not None
    assert not found.intact
