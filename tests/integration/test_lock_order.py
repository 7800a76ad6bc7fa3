"""Eight writers on the same few jobs: they take locks in one order, so none is the victim of a deadlock."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.orchestrator.admission.admit import Quota, admit_all
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Connection, Database
from tests.support.job_stores import Jobs, canceled, postgres_jobs, retried
from tests.support.jobs import CALLER, applied, chunked, embedded, failed, new_job, scraped, submitted

pytestmark = pytest.mark.integration

T = TypeVar("T")
WRITERS, ACTS, SHARED = 8, 40, 6
LIMITS = JobLimits({"free": Quota(max_active=5)})


class Unforgiving(Database):
    """A database whose transactions run once: a deadlock is an error."""

    def run(self, work: Callable[[Connection], T]) -> T:
        with self.connection().transaction():
            return work(self.connection())


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


def url(number: int) -> str:
    return f"https://example.com/{number}"


class Writer:
    """One process that does all kinds of acts on jobs that the others work on too."""

    def __init__(self, database: Database, seed: int, shared: list[str]) -> None:
        """`shared` are ids, and grows with each new job."""
        self.store = JobStore(database, LIMITS)
        self._random = random.Random(seed)
        self._shared = shared
        self.acts = (
            self._submit,
            self._depend,
            self._apply,
            self._apply,
            self._fail,
            self._cancel,
            self._retry,
        )
        self.done = 0

    def run(self) -> int:
        """Do the acts; return how many were not refused."""
        for _ in range(ACTS):
            try:
                self._random.choice((*self.acts, lambda: admit_all(self.store)))()
            except CallerError:
                continue
            self.done += 1
        return self.done

    def _some(self, count: int) -> list[str]:
        """Draw jobs in any order; the newest ones have most to do."""
        return self._random.sample(self._shared[-SHARED:], count)

    def _submit(self) -> None:
        fresh = [new_job(url(self._random.randrange(SHARED))) for _ in range(3)]
        accepted, _ = submitted(self.store, *fresh)
        self._shared += [each.job_id for each in accepted if not each.deduplicated]

    def _depend(self) -> None:
        follower = new_job(f"https://example.com/{uuid.uuid4()}", depends_on=tuple(self._some(2)))
        submitted(self.store, follower)

    def _apply(self) -> None:
        chosen = self._some(3)
        applied(self.store, *map(scraped, chosen), *map(chunked, chosen), *map(embedded, reversed(chosen)))

    def _fail(self) -> None:
        applied(self.store, *(failed(job_id, "embedding", "poison_message") for job_id in self._some(2)))

    def _cancel(self) -> None:
        canceled(self.store, self._some(1)[0])

    def _retry(self) -> None:
        retried(self.store, self._some(1)[0])


def test_no_writer_is_the_victim_of_a_deadlock(database_url: str, jobs: Jobs) -> None:
    shared = [jobs.submit(new_job(url(number))) for number in range(SHARED)]
    databases = [Unforgiving(database_url) for _ in range(WRITERS)]
    writers = [Writer(database, seed, shared) for seed, database in enumerate(databases)]
    try:
        with ThreadPoolExecutor(WRITERS) as pool:
            done = list(pool.map(Writer.run, writers))
    finally:
        for database in databases:
            database.close()
    assert sum(done) > WRITERS * ACTS / 4, "most acts were refused: the writers did not meet"
    ends = {job.status.value for job in jobs.find(CALLER.caller_id)}
    assert {"done", "failed"} <= ends
