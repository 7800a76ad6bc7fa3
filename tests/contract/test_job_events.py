"""One suite for what a stream reads of a job, over the twin and Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobSnapshot
from indexmill.platform.postgres.database import Database
from tests.support.jobs import CALLER, applied, failed, new_job, scraped, stored_job, submitted


@pytest.fixture
def store(database_url: str) -> Iterator[JobStore]:
    database = Database(database_url)
    yield JobStore(database)
    database.close()


def submit(store: JobStore, page: str = "a") -> str:
    job = new_job(f"https://example.com/{page}")
    submitted(store, job)
    return job.job_id


def snapshot(store: JobStore, job_id: str, seq: int = 0) -> JobSnapshot:
    found = store.read(lambda tx: tx.job_events(CALLER.caller_id, job_id, seq))
    assert found is not None
    return found


def statuses(found: JobSnapshot) -> list[tuple[int, str]]:
    return [(event.attempt, event.to_status) for event in found.events]


def test_events_are_returned_oldest_first_with_the_jobs_current_state(store: JobStore) -> None:
    other, job_id = submit(store, "b"), submit(store)
    found = snapshot(store, job_id)
    assert statuses(found) == [(1, "pending"), (1, "scraping")]
    assert found.job == stored_job(store, CALLER.caller_id, job_id)
    applied(store, scraped(other), scraped(job_id))
    found = snapshot(store, job_id)
    assert statuses(found) == [(1, "pending"), (1, "scraping"), (1, "chunking")]
    assert found.job.status == "chunking"
    numbers = [event.seq for event in found.events]
    assert numbers == sorted(set(numbers))
    assert all(event.at.tzinfo is not None and event.error is None for event in found.events)


def test_only_later_events_are_returned(store: JobStore) -> None:
    job_id = submit(store)
    seen = snapshot(store, job_id).newest
    assert (snapshot(store, job_id, seen).newest, snapshot(store, job_id, seen).events) == (seen, [])
    submit(store, "b")
    applied(store, scraped(job_id))
    found = snapshot(store, job_id, seen)
    assert statuses(found) == [(1, "chunking")]
    assert found.newest == found.events[-1].seq > seen
    assert snapshot(store, job_id, found.newest + 10**9).events == []


def test_a_failure_comes_with_its_error(store: JobStore) -> None:
    job_id = submit(store)
    applied(store, failed(job_id, code="http_404"))
    found = snapshot(store, job_id)
    assert found.events[-1].to_status == "failed"
    assert found.events[-1].error == found.job.error
    assert found.job.error is not None
    assert found.job.error.code == "http_404"


def test_foreign_and_unknown_jobs_have_no_events(store: JobStore) -> None:
    job_id = submit(store)
    assert store.read(lambda tx: tx.job_events("somebody-else", job_id, 0)) is None
    assert store.read(lambda tx: tx.job_events(CALLER.caller_id, "nobody", 0)) is None
