"""A canceled job sends no further request: no page, no redirect, no robots.txt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexmill.contracts.messages import ScrapeResult, StageResult, read
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.consumer.deliveries import Done, Wait
from indexmill.platform.security.urls import DomainRates
from indexmill.scraper.ports import Fetched
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.token_bucket import HostState
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.fetcher import InMemoryFetcher, Redirect
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryHosts

ROBOTS = f"{SITE}/robots.txt"


@dataclass
class Marks:
    """Marks of canceled jobs, by id with the attempt."""

    found: dict[str, int] = field(default_factory=dict)
    reads: list[Sequence[str]] = field(default_factory=list)

    def canceled(self, job_ids: Sequence[str]) -> Mapping[str, int]:
        self.reads.append(job_ids)
        return dict(self.found)


class CancelsAt(InMemoryFetcher):
    """Lets time pass with a request, and cancels a job during it."""

    marks: Marks
    url = ""
    took_s = 0.0
    clock: Any = None

    async def fetch(self, url: str, **options: Any) -> Fetched:
        inner = options.pop("before_hop", None)

        async def before(hop: str) -> None:
            self._pass(url)
            if inner is not None:
                await inner(hop)

        if url not in self.pages or not isinstance(self.pages[url], Redirect):
            self._pass(url)
        return await super().fetch(url, **options, before_hop=before if inner else None)

    def _pass(self, url: str) -> None:
        if url == self.url:
            self.marks.found["job"] = 3
            self.clock.tick(self.took_s)


def run(
    pages: dict[str, Any], url: str, took_s: float, *paths: str
) -> tuple[CancelsAt, list[ScrapeResult], Marks]:
    harness, marks = ScraperHarness(CancelsAt(pages)), Marks()
    fetcher = harness.fetcher
    assert isinstance(fetcher, CancelsAt)
    fetcher.marks, fetcher.url, fetcher.took_s, fetcher.clock = marks, url, took_s, harness.clock
    callbacks = InMemoryQueue()
    worker = ScrapeBatch(harness.parts(), callbacks, InMemoryQueue(), cancels=marks)
    worker([delivery(path) for path in paths])
    worker.close()
    results = [read(StageResult, body) for body in callbacks.bodies]
    return fetcher, [each for each in results if isinstance(each, ScrapeResult)], marks


PAGES = {f"{SITE}/a": "<main><p>Words.</p></main>", f"{SITE}/b": "<main><p>Other words.</p></main>"}


def codes(results: list[ScrapeResult]) -> list[str | None]:
    return [each.failure.code if each.failure else None for each in results]


@pytest.mark.parametrize(("took_s", "code"), [(1.0, "canceled"), (0.1, None)])
def test_no_page_is_asked_for_after_its_robots_txt_took_a_second(took_s: float, code: str | None) -> None:
    fetcher, results, marks = run(PAGES, ROBOTS, took_s, "/a")
    assert codes(results) == [code]
    assert (f"{SITE}/a" in fetcher.requested) is (code is None)
    assert len(marks.reads) == (2 if code else 1)


def test_no_redirect_is_followed() -> None:
    pages = {**PAGES, f"{SITE}/old": Redirect(f"{SITE}/a")}
    fetcher, results, _ = run(pages, f"{SITE}/old", 1.0, "/old")
    assert codes(results) == ["canceled"]
    assert f"{SITE}/a" not in fetcher.requested


@pytest.mark.parametrize("path", [ROBOTS, f"{SITE}/a"])
def test_no_request_is_sent_after_connecting_took_a_second(path: str) -> None:
    harness, marks, callbacks = ScraperHarness(InMemoryFetcher(PAGES)), Marks(), InMemoryQueue()
    fetcher = harness.fetcher
    asked = [ROBOTS, f"{SITE}/a"]
    before = asked[: asked.index(path)]

    def connecting() -> None:
        if fetcher.requested == before:
            marks.found["job"] = 3
            harness.clock.tick(1.0)

    fetcher.connecting = connecting
    worker = ScrapeBatch(harness.parts(), callbacks, InMemoryQueue(), cancels=marks)
    worker([delivery("/a")])
    worker.close()
    (result,) = [read(StageResult, body) for body in callbacks.bodies]
    assert (result.failure and result.failure.code) == "canceled"
    assert fetcher.requested == before


def test_a_job_that_is_canceled_already_asks_for_nothing() -> None:
    harness, marks, callbacks = ScraperHarness(InMemoryFetcher(PAGES)), Marks({"job": 3}), InMemoryQueue()
    worker = ScrapeBatch(harness.parts(), callbacks, InMemoryQueue(), cancels=marks)
    worker([delivery("/a"), delivery("/b", job_id="other")])
    worker.close()
    assert sorted(harness.fetcher.requested) == [f"{SITE}/b", ROBOTS]
    assert marks.reads == [["job", "other"]]


def test_a_canceled_job_leaves_the_turn_that_it_was_promised_to_others() -> None:
    pages = {f"{SITE}/{name}": f"<p>Page {name} with some words.</p>" for name in "abcd"}
    harness, marks, states = ScraperHarness(InMemoryFetcher(pages)), Marks(), InMemoryHosts()
    harness.rates = RateLimiter(DomainRates.parse("*=1:2"), states, StoreClock(harness.clock))
    worker = ScrapeBatch(harness.parts(), InMemoryQueue(), InMemoryQueue(), cancels=marks)
    first = worker([delivery("/a"), delivery("/b", job_id="b"), delivery("/c", job_id="c")])
    assert [type(each) for each in first] == [Done, Wait, Wait]
    marks.found |= {"b": 3, "c": 3}
    harness.clock.tick(2.0)
    assert worker([delivery("/b", job_id="b"), delivery("/c", job_id="c")]) == [Done()] * 2
    assert worker([delivery("/d", job_id="d")]) == [Done()]
    worker.close()
    assert harness.fetcher.requested == [ROBOTS, f"{SITE}/a", f"{SITE}/d"]


def test_a_canceled_request_says_nothing_of_its_site() -> None:
    harness, marks, states = ScraperHarness(InMemoryFetcher(PAGES)), Marks(), InMemoryHosts()
    harness.rates = RateLimiter(DomainRates.parse("*=1:3"), states, StoreClock(harness.clock))
    failing = HostState(failures=3, open_until=0.0, cause="connection_refused")
    states.replace("example.com", 0, failing)

    def connecting() -> None:
        marks.found["job"] = 3
        harness.clock.tick(1.0)

    harness.fetcher.connecting = connecting
    worker = ScrapeBatch(harness.parts(), InMemoryQueue(), InMemoryQueue(), cancels=marks)
    worker([delivery("/a")])
    worker.close()
    state = states.state("example.com")
    assert (harness.fetcher.requested, state.failures, state.running) == ([], 3, {})


def test_a_later_attempt_is_not_canceled() -> None:
    harness, marks, callbacks = ScraperHarness(InMemoryFetcher(PAGES)), Marks({"job": 2}), InMemoryQueue()
    worker = ScrapeBatch(harness.parts(), callbacks, InMemoryQueue(), cancels=marks)
    worker([delivery("/a")])
    worker.close()
    assert f"{SITE}/a" in harness.fetcher.requested
