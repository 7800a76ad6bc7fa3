"""One suite for every history store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.orchestrator.adapters.postgres_history import PostgresHistory
from indexmill.orchestrator.adapters.postgres_jobs import PostgresJobs
from indexmill.orchestrator.history import HistoryStore, ReadHistory
from indexmill.orchestrator.ports import JobStore
from indexmill.orchestrator.results import Decider
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from indexmill.testing.history import InMemoryHistory
from indexmill.testing.job_store import InMemoryJobs
from tests.support.jobs import CALLER, failed, new_job, scraped


@dataclass
class Harness:
    jobs: JobStore
    store: HistoryStore


@pytest.fixture(params=["twin", "postgres"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "twin":
        jobs = InMemoryJobs(FrozenClock())
        yield Harness(jobs, InMemoryHistory(jobs))
        return
    database = Database(request.getfixturevalue("database_url"))
    yield Harness(PostgresJobs(database), PostgresHistory(database))
    database.close()


def a_job_that_failed(jobs: JobStore) -> str:
    job = new_job()
    jobs.submit([job, new_job("https://example.com/other")])
    told: Any = {"tries": 2, "worker": "worker-1", "elapsed_ms": 40}
    results = [scraped(job.job_id).model_copy(update=told), failed(job.job_id, "chunking", "empty_content")]
    jobs.apply(results, Decider(FrozenClock()))
    return job.job_id


def test_every_transition_is_told_in_order_and_sealed(harness: Harness) -> None:
    job_id = a_job_that_failed(harness.jobs)
    found = harness.store.history(CALLER.caller_id, job_id)
    assert found is not None
    assert [(each.from_status, each.to_status, each.attempt) for each in found.entries] == [
        (None, "pending", 1),
        ("pending", "scraping", 1),
        ("scraping", "chunking", 1),
        ("chunking", "failed", 1),
    ]
    assert [each.prev_hash for each in found.entries] == ["", *(each.hash for each in found.entries[:-1])]
    assert found.intact


def test_a_history_is_its_owners_only(harness: Harness) -> None:
    job_id = a_job_that_failed(harness.jobs)
    assert harness.store.history("somebody-else", job_id) is None
    assert harness.store.history(CALLER.caller_id, "no-such-job") is None
    for unknown in ("no-such-job", "00000000-0000-4000-8000-000000000000", "\0"):
        with pytest.raises(CallerError) as refused:
            ReadHistory(harness.store)(CALLER, unknown)
        assert refused.value.code == "not_found"


@pytest.fixture
def real(database_url: str) -> Iterator[tuple[Database, str]]:
    database = Database(database_url)
    yield database, a_job_that_failed(PostgresJobs(database))
    database.close()


def test_an_entry_says_who_did_what_for_how_long(real: tuple[Database, str]) -> None:
    database, job_id = real
    found = PostgresHistory(database).history(CALLER.caller_id, job_id)
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
def test_a_change_behind_the_databases_back_is_told(real: tuple[Database, str], change: str) -> None:
    database, job_id = real
    connection = database.connection()
    connection.execute("ALTER TABLE job_history DISABLE TRIGGER append_only")
    assert connection.execute(change.encode(), (job_id,)).rowcount == 1
    found = PostgresHistory(database).history(CALLER.caller_id, job_id)
    assert found is not None
    assert not found.intact
