"""A process that ends after results were committed, and before what follows from them was sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from indexmill.orchestrator.store.jobs import JobsTx, T
from indexmill.orchestrator.store.rows import JobState
from indexmill.platform.consumer.deliveries import Done, Retry
from tests.support.jobs import scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.support.sweeper import SweeperHarness
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs


class Dying(InMemoryJobs):
    """Ends its process after the next commit of results."""

    dies = False

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Commit, and die when it is time to."""
        found = super().transaction(work)
        if self.dies:
            raise SystemExit(1)
        return found


def test_what_was_committed_and_not_sent_is_sent_by_the_sweeper() -> None:
    p = SweeperHarness(Dying)
    store = p.jobs
    assert isinstance(store, Dying)
    job_id = p.submit()
    p.scrape.bodies.clear()
    store.dies = True
    result = scraped(job_id)
    with pytest.raises(SystemExit):
        p.deliver(result)
    store.dies = False
    # Its result is redelivered and is late: the lease of the dead process has not expired.
    assert p.deliver(result, receive_count=2) == [Done()]
    assert (p.status(job_id), p.chunk.bodies) == ("chunking", [])
    p.tick()
    assert len(p.chunk.bodies) == 1
    p.chunk_all()
    assert (p.status(job_id), len(p.embed.bodies)) == ("embedding", 1)


@pytest.mark.parametrize("queue", ["chunk", "embed"])
def test_an_unsent_message_keeps_its_backoff_when_its_result_is_redelivered(queue: str) -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.scrape.bodies.clear()
    getattr(p, queue).unavailable = True
    result = scraped(job_id)
    p.deliver(result)
    getattr(p, queue).unavailable = False
    p.clock.tick(5)
    p.deliver(result, receive_count=2)
    assert getattr(p, queue).bodies == []
    p.tick()
    assert len(getattr(p, queue).bodies) == 1


class FailingJobs(InMemoryJobs):
    """Fails on the results of one job with an unexpected error."""

    fails_on = ""

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock, unless that job is one of them."""
        if self.fails_on in job_ids:
            raise RuntimeError("surprise")
        return super().lock_jobs(job_ids)


def test_a_result_that_cannot_be_applied_leaves_its_neighbours_alone() -> None:
    store = FailingJobs(FrozenClock())
    p = OrchestratorHarness(store)
    first, second, third = (p.submit(f"https://example.com/{name}") for name in "abc")
    store.fails_on = second
    good, bad, better = p.deliver(*map(scraped, (first, second, third)))
    assert good == better == Done()
    assert isinstance(bad, Retry)
    assert (bad.reason, p.status(second)) == ("internal_error", "scraping")
    assert p.status(first) == p.status(third) == "embedding"
