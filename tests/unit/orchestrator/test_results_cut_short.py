"""Postgres becomes unavailable after results were committed, and before their next messages were sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.job_store import JobsTx, T
from indexmill.orchestrator.ports import JobState
from indexmill.platform.consumer.deliveries import Done, Retry
from indexmill.testing.clock import FrozenClock
from indexmill.testing.jobs import InMemoryJobs
from tests.support.jobs import Pipeline, scraped


class Leaving(InMemoryJobs):
    """Becomes unavailable before a call of `lost`, once `after` others of that name were done."""

    lost, after = "", 0

    def leaves(self, name: str, after: int = 0) -> None:
        self.lost, self.after = name, after

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run, unless it is away."""
        self._meet("transaction")
        return super().transaction(work)

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Mark as sent, unless unavailable."""
        self._meet("mark_sent")
        super().mark_sent(ids)

    def _meet(self, name: str) -> None:
        if name != self.lost:
            return
        if self.after == 0:
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "It is away.")
        self.after -= 1


def cut_short() -> tuple[Pipeline, Leaving, str]:
    """Return a pipeline whose job was scraped, and whose chunks could not be written."""
    store = Leaving(FrozenClock())
    p = Pipeline(store)
    job_id = p.submit()
    store.leaves("transaction", after=1)
    (outcome,) = p.deliver(scraped(job_id))
    assert isinstance(outcome, Retry)
    assert p.status(job_id) == "chunking"
    return p, store, job_id


def test_what_was_cut_short_goes_on_when_its_result_comes_again() -> None:
    p, store, job_id = cut_short()
    store.clock.tick(5)
    (still,) = p.deliver(scraped(job_id), receive_count=2)
    assert isinstance(still, Retry)
    store.leaves("")
    # Another process may have it by then: nothing is remembered from one batch to the next.
    store.clock.tick(5)
    assert p.deliver(scraped(job_id), receive_count=3) == [Done()]
    assert p.status(job_id) == "embedding"
    assert len(p.embed.bodies) == 1
    store.clock.tick(5)
    p.deliver(scraped(job_id), receive_count=4)
    assert len(p.embed.bodies) == 1


def test_what_somebody_is_at_is_left_to_him() -> None:
    p, store, job_id = cut_short()
    store.leaves("")
    store.clock.tick(2)
    assert p.deliver(scraped(job_id), receive_count=2) == [Done()]
    assert (p.status(job_id), len(p.chunker.calls)) == ("chunking", 1)


def test_a_copy_that_was_sent_twice_says_nothing_of_who_was_cut_short() -> None:
    p, store, job_id = cut_short()
    store.leaves("")
    store.clock.tick(5)
    assert p.deliver(scraped(job_id)) == [Done()]
    assert (p.status(job_id), len(p.chunker.calls)) == ("chunking", 1)


def test_what_could_not_be_sent_waits_for_its_time_also_when_its_result_comes_again() -> None:
    store = InMemoryJobs(FrozenClock())
    p = Pipeline(store)
    job_id = p.submit()
    p.embed.away = True
    p.deliver(scraped(job_id))
    p.embed.away = False
    store.clock.tick(5)
    p.deliver(scraped(job_id), receive_count=2)
    assert (p.status(job_id), p.embed.bodies) == ("embedding", [])


def test_a_call_that_cannot_be_noted_as_done_goes_on() -> None:
    store = Leaving(FrozenClock())
    p = Pipeline(store)
    job_id = p.submit()
    store.leaves("mark_sent")
    assert p.deliver(scraped(job_id)) == [Done()]
    assert p.status(job_id) == "embedding"
    assert len(p.embed.bodies) == 1


class Spoiled(InMemoryJobs):
    """Fails on the results of one job with an unexpected error."""

    spoils = ""

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock, unless that job is one of them."""
        if self.spoils in job_ids:
            raise RuntimeError("surprise")
        return super().lock_jobs(job_ids)


def test_a_result_that_cannot_be_applied_leaves_its_neighbours_alone() -> None:
    store = Spoiled(FrozenClock())
    p = Pipeline(store)
    first, second, third = (p.submit(f"https://example.com/{name}") for name in "abc")
    store.spoils = second
    good, bad, better = p.deliver(*map(scraped, (first, second, third)))
    assert good == better == Done()
    assert isinstance(bad, Retry)
    assert (bad.reason, p.status(second)) == ("internal_error", "scraping")
    assert p.status(first) == p.status(third) == "embedding"
