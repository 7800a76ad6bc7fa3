"""Several transactions admit at the same time, on a real Postgres."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest

from indexmill.orchestrator.admission.admit import Quota
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from tests.support.jobs import applied, failed, new_job, submitted

pytestmark = pytest.mark.integration

THREADS = 4
ACTIVE = 5
WINDOW = 8
QUOTAS = {"pro": Quota(max_active=ACTIVE)}
COUNT = "SELECT count(*) FROM jobs WHERE status = %s AND caller_id LIKE %s"


class Many:
    """Stores with connections of their own, and a look from outside."""

    def __init__(self, url: str, limits: JobLimits) -> None:
        """Nothing is submitted yet."""
        self.databases = [Database(url) for _ in range(THREADS)]
        self.stores = [JobStore(database, limits) for database in self.databases]
        self.outside = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        """Close every connection."""
        for database in self.databases:
            database.close()
        self.outside.close()

    def count(self, status: str, callers: str = "%") -> int:
        """Return how many jobs have the status."""
        row = self.outside.execute(COUNT, (status, callers)).fetchone()
        assert row is not None
        return int(row[0])

    def in_flight(self) -> list[str]:
        """Return the jobs that were started and have not ended."""
        rows = self.outside.execute("SELECT id FROM jobs WHERE status = 'scraping' ORDER BY id").fetchall()
        return [row[0] for row in rows]

    def at_once(self, work: Callable[[JobStore, int], None]) -> None:
        """Run `work` on every store at the same moment."""
        barrier = threading.Barrier(THREADS)

        def one(number: int) -> None:
            barrier.wait()
            work(self.stores[number], number)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(one, range(THREADS)))


@pytest.fixture
def quota(database_url: str) -> Iterator[Many]:
    many = Many(database_url, JobLimits(QUOTAS))
    yield many
    many.close()


@pytest.fixture
def window(database_url: str) -> Iterator[Many]:
    many = Many(database_url, JobLimits(QUOTAS, window=WINDOW))
    yield many
    many.close()


def submit(store: JobStore, caller: str, count: int, mark: object) -> None:
    urls = [f"https://example.com/{caller}/{mark}/{at}" for at in range(count)]
    submitted(store, *(replace(new_job(url, caller_id=caller), tier="pro") for url in urls))


def end(store: JobStore, job_ids: Sequence[str]) -> None:
    applied(store, *(failed(job_id) for job_id in job_ids))


def test_a_quota_is_never_exceeded_however_many_submit(quota: Many) -> None:
    for turn in range(5):
        caller = f"ann-{turn}"
        quota.at_once(lambda store, number, caller=caller: submit(store, caller, 3, number))  # type: ignore[misc]
        assert quota.count("scraping", caller) == ACTIVE


def test_no_job_is_left_waiting_when_submits_meet_ends(quota: Many) -> None:
    """Nothing but the submits and ends themselves admits here: a free place that both missed would stay."""

    def work(store: JobStore, number: int) -> None:
        for turn in range(12):
            submit(store, "ann", 2, (number, turn))
            end(store, quota.in_flight()[number::THREADS][:2])

    quota.at_once(work)
    assert quota.count("scraping") == ACTIVE
    while quota.count("pending"):
        assert len(quota.in_flight()) == ACTIVE
        quota.at_once(lambda store, number: end(store, quota.in_flight()[number : number + 1]))
    assert quota.count("scraping") <= ACTIVE


def test_the_window_is_exceeded_by_no_more_than_what_is_admitted_at_the_same_moment(window: Many) -> None:
    window.at_once(lambda store, number: submit(store, f"caller-{number}", 5, 0))
    assert WINDOW <= window.count("scraping") <= WINDOW + (THREADS - 1) * ACTIVE
    while window.count("pending"):
        some = window.in_flight()
        assert some
        window.at_once(lambda store, number, some=some: end(store, some[number : number + 1]))  # type: ignore[misc]
    for job_id in window.in_flight():
        end(window.stores[0], [job_id])
    assert window.count("failed") == THREADS * 5


def test_batches_that_share_callers_do_not_deadlock(quota: Many) -> None:
    for number in range(THREADS):
        submit(quota.stores[0], f"caller-{number}", 20, 0)
    for _ in range(12):
        ids = quota.in_flight()
        quota.at_once(lambda store, number, ids=ids: end(store, ids[number::THREADS]))  # type: ignore[misc]
    assert quota.count("failed") == THREADS * 20
    deadlocks = quota.outside.execute("SELECT sum(deadlocks) FROM pg_stat_database").fetchone()
    assert deadlocks is not None
    assert deadlocks[0] == 0
