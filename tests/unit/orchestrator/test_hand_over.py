"""No caller waits for another service: what takes longer is handed over, and nothing hangs on its arrival."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.hand_over import TakeOver
from indexmill.orchestrator.job_store import JobStore
from indexmill.platform.postgres.database import Database
from tests.support.jobs import CALLER, URL, embedded, failed, scraped
from tests.unit.orchestrator.verbs import Mill


class Waiting(Mill):
    """What is handed over waits until a test takes it over."""

    def __init__(self, store: JobStore | None = None) -> None:
        super().__init__(store)
        self.successor.run = None
        self.take_over = TakeOver(self.store, self.calls)

    def failed_in_chunking(self, url: str | None = None) -> str:
        job_id = self.submit(url)
        self.chunker.away = True
        self.deliver(scraped(job_id))
        self.deliver(failed(job_id, "chunking", "max_retries_exceeded"))
        self.chunker.away = False
        self.chunker.calls.clear()
        return job_id


@pytest.fixture
def mill() -> Waiting:
    return Waiting()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def real(database: Database) -> Waiting:
    return Waiting(PostgresJobs(database))


def test_a_retry_answers_before_its_chunking_is_called(mill: Waiting) -> None:
    job_id = mill.failed_in_chunking()
    assert mill.retry_jobs.one(CALLER, job_id).status == "chunking"
    assert (len(mill.successor.handed), mill.chunker.calls) == (1, [])
    assert mill.take_over(mill.successor.handed) == 1
    assert (mill.status(job_id), len(mill.embed.bodies)) == ("embedding", 1)


def test_a_bulk_retry_hands_all_over_at_once(real: Waiting) -> None:
    jobs = [real.failed_in_chunking(f"{URL}/{at}") for at in range(3)]
    assert set(real.retry_all().retried) == set(jobs)
    assert real.take_over(real.successor.handed) == 3
    assert {real.status(job_id) for job_id in jobs} == {"embedding"}
    assert len(real.chunker.calls) == 1


def test_a_submit_that_lets_a_retried_job_start_hands_it_over(real: Waiting, database: Database) -> None:
    job_id = real.failed_in_chunking()
    database.connection().execute(
        "INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'r', 'o')"
    )
    assert real.retry_jobs.one(CALLER, job_id).status == "pending"
    assert real.successor.handed == []
    database.connection().execute("DELETE FROM pauses")
    real.send(url=f"{URL}/another", corpus_name="docs")
    assert real.take_over(real.successor.handed) == 1
    assert real.status(job_id) == "embedding"


def test_what_goes_to_a_queue_is_not_handed_over(real: Waiting) -> None:
    real.send(url=URL, corpus_name="docs")
    embedding, scraping = real.submit(), real.submit()
    real.deliver(scraped(embedding), failed(scraping))
    real.deliver(failed(embedding, "embedding"))
    real.retry_all(include_permanent=True)
    assert (real.successor.handed, len(real.embed.bodies), len(real.scrape.bodies)) == ([], 2, 4)


@pytest.mark.parametrize("away", [True, False])
def test_what_is_lost_on_its_way_is_the_sweepers(mill: Waiting, away: bool) -> None:
    job_id = mill.failed_in_chunking()
    mill.successor.away = away
    mill.retry_jobs.one(CALLER, job_id)
    assert mill.store.claim(10) == []
    mill.clock.tick(11 if away else 31)
    mill.calls.run(mill.store.claim(10))
    assert mill.status(job_id) == "embedding"


def test_told_of_twice_it_counts_once(mill: Waiting) -> None:
    job_id = mill.failed_in_chunking()
    mill.retry_jobs.one(CALLER, job_id)
    assert [mill.take_over(mill.successor.handed) for _ in range(2)] == [1, 0]
    assert (mill.status(job_id), len(mill.embed.bodies), len(mill.chunker.calls)) == ("embedding", 1, 1)
    mill.deliver(embedded(job_id, attempt=2))
    assert mill.status(job_id) == "done"
