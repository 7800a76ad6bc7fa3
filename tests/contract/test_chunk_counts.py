"""One suite for every count of a caller's chunks of the day."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from indexmill.contracts.identity import Quota
from indexmill.embedding.adapters.pgvector.index import PostgresChunkCounts
from indexmill.embedding.ports import ChunkCounts
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from tests.support.jobs import CALLER, applied, chunked, embedded, new_job, scraped, stored_job, submitted
from tests.twins.chunk_counts import InMemoryChunkCounts


@pytest.fixture(params=["twin", "postgres"])
def counts(request: pytest.FixtureRequest) -> Iterator[ChunkCounts]:
    if request.param == "twin":
        yield InMemoryChunkCounts()
        return
    database = Database(request.getfixturevalue("database_url"))
    yield PostgresChunkCounts(database)
    database.close()


def test_a_day_has_so_many_chunks_for_each_caller(counts: ChunkCounts) -> None:
    assert not counts.add("ann", 11, 10)
    assert [counts.add("ann", 4, 10) for _ in range(3)] == [True, True, False]
    assert counts.add("ann", 2, 10)
    assert not counts.add("ann", 1, 10)
    assert counts.add("bob", 10, 10)


def test_what_is_taken_back_can_be_used_again(counts: ChunkCounts) -> None:
    assert counts.add("ann", 10, 10)
    assert counts.add("ann", -4, 10)
    assert counts.add("ann", 4, 10)
    assert counts.add("ann", -400, 10)
    assert not counts.add("ann", 11, 10)
    # Also when the limit is lower by now.
    assert counts.add("ann", 10, 10)
    assert counts.add("ann", -1, 5)


def test_requests_at_once_do_not_exceed_it_together(database_url: str) -> None:
    databases = [Database(database_url) for _ in range(4)]

    def work(database: Database) -> int:
        own = PostgresChunkCounts(database)
        return sum(own.add("ann", 3, 100) for _ in range(20))

    with ThreadPoolExecutor(len(databases)) as pool:
        assert sum(pool.map(work, databases)) == 33
    for database in databases:
        database.close()


@pytest.mark.shows("S9")
def test_jobs_and_standalone_requests_have_one_count(database_url: str) -> None:
    database = Database(database_url)
    store = JobStore(database, JobLimits({"free": Quota(chunks_per_day=10)}))
    counts = PostgresChunkCounts(database)
    ((job,), _) = submitted(store, new_job())
    applied(store, scraped(job.job_id), chunked(job.job_id), embedded(job.job_id, chunk_count=6))
    assert not counts.add(CALLER.caller_id, 5, 10)
    assert counts.add(CALLER.caller_id, 4, 10)
    ((waits,), _) = submitted(store, new_job("https://example.com/b"))
    found = stored_job(store, CALLER.caller_id, waits.job_id)
    assert found is not None
    assert found.waiting is not None
    assert found.waiting.reason == "quota_chunks"
    database.close()
