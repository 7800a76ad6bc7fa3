"""Pages of a site with a pace: who has to wait goes back to the queue, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from indexmill.contracts.errors import DomainBusy, ErrorCode
from indexmill.contracts.messages import StageResult, read
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.consumer.deliveries import Done, Outcome, Retry, Wait
from indexmill.platform.security.urls import DomainRates
from indexmill.scraper.adapters.answer import status_failure
from indexmill.scraper.ports import NameNotFound
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.scrape import execute_scrape
from indexmill.scraper.worker import ScrapeBatch
from tests.support.scraper import SITE, ScraperHarness, delivery
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import InMemoryFetcher, Redirect
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryHosts

PAGES = {f"{SITE}/{name}": f"<p>Page {name} with some words.</p>" for name in "abcdefgh"}


OPEN: list[ScrapeBatch] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the event loops of the workers that a test made."""
    yield
    while OPEN:
        OPEN.pop().close()


@dataclass
class Worker:
    """A worker in front of a site; its messages come back when they say."""

    rates: str = "*=1:3"
    pages: dict[str, object] = field(default_factory=lambda: dict(PAGES))
    states: InMemoryHosts = field(default_factory=InMemoryHosts)
    clock: FrozenClock = field(default_factory=FrozenClock)

    def __post_init__(self) -> None:
        self.fetcher = InMemoryFetcher(self.pages)  # type: ignore[arg-type]
        pace = RateLimiter(DomainRates.parse(self.rates), self.states, StoreClock(self.clock))
        self.parts = ScraperHarness(self.fetcher, clock=self.clock, rates=pace).parts()
        self.results = InMemoryQueue()
        self.batch = ScrapeBatch(self.parts, self.results, InMemoryQueue())
        OPEN.append(self.batch)

    def handle(self, *paths: str, resume: str | None = None) -> list[Outcome]:
        deadline = self.clock.monotonic() + 60.0
        return list(self.batch([replace(delivery(path, deadline=deadline), resume=resume) for path in paths]))

    def result(self) -> StageResult:
        return read(StageResult, self.results.bodies[-1])

    @property
    def asked(self) -> list[str]:
        return [url.removeprefix(SITE) for url in self.fetcher.requested]


def test_what_finds_no_turn_waits_without_a_try() -> None:
    here = Worker()
    outcomes = here.handle("/a", "/b", "/c", "/d")
    # robots.txt is a request too: two pages beside it.
    assert here.asked[0] == "/robots.txt"
    assert len(here.asked) == 3
    assert [type(each) for each in outcomes] == [Done, Done, Wait, Wait]
    waits = [each.after_s for each in outcomes if isinstance(each, Wait)]
    assert sorted(waits) == [1.0, 2.0]
    assert len(here.results.bodies) == 2, "a short wait is not reported"
    here.clock.tick(2.0)
    assert here.handle("/c", "/d") == [Done(), Done()]
    assert len(here.asked) == 5


@pytest.mark.parametrize(("connecting_s", "apart_s"), [(0.04, 2.0), (0.5, 2.5), (3.0, 2.0)])
def test_a_crawl_delay_begins_when_the_request_before_is_really_sent(
    connecting_s: float, apart_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = {f"{SITE}/robots.txt": "User-agent: *\nCrawl-delay: 2"}
    here = Worker("*=1:3", pages={**PAGES, **rules})
    sent: list[float] = []

    def connecting() -> None:
        # The first page's connection is slow, the others' are kept.
        if len(here.asked) == 1:
            here.clock.tick(connecting_s)
        sent.append(here.clock.monotonic())

    async def sleep(seconds: float) -> None:
        here.clock.tick(seconds)

    monkeypatch.setattr("indexmill.scraper.rate_limit.asyncio.sleep", sleep)
    here.fetcher.connecting = connecting
    for path in ("/a", "/b", "/c"):
        (outcome,) = here.handle(path)
        while isinstance(outcome, Wait):
            here.clock.tick(outcome.after_s)
            (outcome,) = here.handle(path)
        # The queue's waits are whole seconds, rests below a quarter are none of them.
        here.clock.tick(max(0.0, 2.0 - connecting_s) if path == "/a" else 1.0)
    assert here.asked == ["/robots.txt", "/a", "/b", "/c"]
    apart = [after - before for before, after in pairwise(sent[1:])]
    assert apart == pytest.approx([apart_s, 2.0])
    assert min(apart) > 2.0 - 1e-6


def test_the_pages_of_a_batch_cost_one_write_together() -> None:
    here = Worker("*=100:100")
    here.handle("/a")
    before = here.states.writes
    here.handle("/b", "/c", "/d", "/e", "/f", "/g")
    assert here.states.writes == before + 1


def test_a_page_that_is_given_up_leaves_the_turns_of_the_others() -> None:
    here = Worker("*=100:100")
    pace = here.parts.rates

    async def pages() -> list[object]:
        turns = [asyncio.create_task(pace.page(2000.0).acquire(f"{SITE}/{name}")) for name in "abc"]
        await asyncio.sleep(0)
        turns[0].cancel()
        return await asyncio.gather(*turns, return_exceptions=True)

    given_up, *others = asyncio.run(pages())
    assert isinstance(given_up, asyncio.CancelledError)
    assert others == [None, None]
    # Another event loop has rounds of its own.
    asyncio.run(pace.page(2000.0).acquire(f"{SITE}/d"))


def test_a_long_wait_is_reported_to_the_job() -> None:
    here = Worker("*=0.02:2")
    *_, outcome = here.handle("/a", "/b")
    assert isinstance(outcome, Wait)
    assert outcome.reason == ErrorCode.DOMAIN_BUSY
    retrying = here.result().retrying
    assert retrying is not None
    assert (retrying.cause, retrying.tries, retrying.retry_in_s) == (ErrorCode.DOMAIN_BUSY, 0, 50.0)


@pytest.mark.shows("X20")
def test_a_site_that_failed_is_waited_for_and_reported_to_its_jobs() -> None:
    failures = {f"{SITE}/{name}": status_failure(503) for name in "abc"}
    here = Worker("*=100:100", pages={**PAGES, **failures})
    assert all(isinstance(each, Retry) for each in here.handle("/a", "/b", "/c"))
    (outcome,) = here.handle("/d")
    assert isinstance(outcome, Wait)
    assert (outcome.reason, outcome.after_s) == (ErrorCode.DOMAIN_FAILING, 60.0)
    retrying = here.result().retrying
    assert retrying is not None
    assert retrying.cause == ErrorCode.DOMAIN_FAILING
    assert retrying.failure is not None
    assert retrying.failure.code == "http_503"
    here.clock.tick(61.0)
    assert here.handle("/d") == [Done()]


def test_names_that_do_not_exist_say_nothing_of_their_site() -> None:
    missing = {f"{SITE}/{name}": NameNotFound() for name in "abcde"}
    here = Worker("*=100:100", pages={**PAGES, **missing, f"{SITE}/g": status_failure(503)})
    assert here.handle(*(f"/{name}" for name in "abcde")) == [Done()] * 5
    assert here.handle("/f") == [Done()]
    # Nor do they make up for a failure of it.
    for path in ("/g", "/a", "/g", "/b"):
        here.handle(path)
    state = here.states.state("example.com")
    assert (state.failures, state.cause) == (2, "http_503")


@pytest.mark.fault("F57")
def test_without_the_store_pages_wait_and_none_is_asked_for() -> None:
    here = Worker()
    here.states.unavailable = True
    (outcome,) = here.handle("/a")
    assert isinstance(outcome, Wait)
    assert here.asked == []
    here.states.unavailable = False
    assert here.handle("/a") == [Done()]


def test_a_redirect_that_has_to_wait_resumes_there() -> None:
    """With a burst of one request no page would ever get behind a redirect of its site otherwise."""
    pages = {**PAGES, f"{SITE}/old": Redirect(f"{SITE}/older"), f"{SITE}/older": Redirect(f"{SITE}/a")}
    here = Worker("*=1:1", pages=pages)
    outcome: Outcome = Wait(0.0, "")
    for _ in range(6):
        assert isinstance(outcome, Wait)
        here.clock.tick(outcome.after_s)
        (outcome,) = here.handle("/old", resume=outcome.resume)
        if isinstance(outcome, Done):
            break
    assert outcome == Done()
    assert here.asked == ["/robots.txt", "/old", "/older", "/a"]
    document = here.result().document
    assert document is not None
    assert (document.url, document.final_url) == (f"{SITE}/old", f"{SITE}/a")


def test_redirects_are_counted_across_waits() -> None:
    loop = {f"{SITE}/x": Redirect(f"{SITE}/y"), f"{SITE}/y": Redirect(f"{SITE}/x")}
    here = Worker("*=1:1", pages=dict(loop))
    outcome: Outcome = Wait(0.0, "")
    while isinstance(outcome, Wait):
        here.clock.tick(outcome.after_s)
        (outcome,) = here.handle("/x", resume=outcome.resume)
    assert outcome == Done()
    assert len(here.asked) == 1 + 6
    failed = here.result().failure
    assert failed is not None
    assert failed.code == ErrorCode.TOO_MANY_REDIRECTS


async def test_a_caller_who_has_to_wait_learns_how_long() -> None:
    here = Worker("*=0.1:2")
    await execute_scrape(f"{SITE}/a", None, parts=here.parts, fetch=here.parts.rates.page(2000.0))
    with pytest.raises(DomainBusy) as caught:
        await execute_scrape(f"{SITE}/b", None, parts=here.parts, fetch=here.parts.rates.page(2000.0))
    assert (caught.value.code, caught.value.http_status, caught.value.retry_after) == ("domain_busy", 503, 10)


def test_a_redirected_robots_txt_is_no_page() -> None:
    pages = {
        **PAGES,
        f"{SITE}/robots.txt": Redirect("https://www.example.com/robots.txt"),
        "https://www.example.com/robots.txt": "User-agent: *\nAllow: /",
        "https://www.example.com/x": "<p>Words of another site.</p>",
    }
    here = Worker("*=1:1", pages=pages)
    busy = replace(delivery("/x", deadline=here.clock.monotonic() + 60.0, url="https://www.example.com/x"))
    assert not isinstance(here.batch([busy])[0], Retry)
    outcome: Outcome = Wait(0.0, "")
    for _ in range(12):
        if not isinstance(outcome, Wait):
            break
        here.clock.tick(outcome.after_s)
        (outcome,) = here.handle("/a", resume=outcome.resume)
    assert outcome == Done()
    document = here.result().document
    assert document is not None
    assert (document.final_url, document.text) == (f"{SITE}/a", "Page a with some words.")


def test_pages_that_wait_for_the_same_robots_txt_keep_their_own_way() -> None:
    here = Worker()
    here.states.unavailable = True
    deadline = here.clock.monotonic() + 60.0
    behind = replace(delivery("/a", deadline=deadline), resume=f"4 {SITE}/b")
    outcomes = here.batch([behind, delivery("/c", deadline=deadline)])
    assert [each.resume for each in outcomes if isinstance(each, Wait)] == [f"4 {SITE}/b", None]


def test_robots_that_redirect_within_a_slow_site_are_read() -> None:
    pages = {
        **PAGES,
        f"{SITE}/robots.txt": Redirect(f"{SITE}/rules.txt"),
        f"{SITE}/rules.txt": "User-agent: *\nAllow: /",
    }
    here = Worker("*=1:1", pages=pages)
    (outcome,) = here.handle("/a")
    assert isinstance(outcome, Wait)
    here.clock.tick(outcome.after_s)
    assert here.handle("/a") == [Done()]
    assert here.asked == ["/robots.txt", "/rules.txt", "/a"]


def test_a_wait_names_the_site_that_it_is_for() -> None:
    pages = {f"{SITE}/away": Redirect("https://slow.example.net/x")}
    here = Worker("*=100:100,slow.example.net=0.001", pages=pages)
    here.handle("/away")
    (outcome,) = here.handle("/away")
    assert isinstance(outcome, Wait)
    assert outcome.site == "slow.example.net"
    retrying = here.result().retrying
    assert retrying is not None
    assert retrying.site == "slow.example.net"


def test_requests_that_ended_make_room_for_other_workers() -> None:
    one, other, third = (Worker("*=1:3", states=InMemoryHosts()) for _ in range(3))
    for each in (other, third):
        each.states = one.states
        each.__post_init__()
    assert one.handle("/a") == [Done()]
    for each in (one, other, third):
        each.clock.tick(10.0)
    assert other.handle("/b", "/c") == [Done(), Done()]
    for each in (one, other, third):
        each.clock.tick(10.0)
    assert third.handle("/d", "/e") == [Done(), Done()]


def test_a_redirect_that_leaves_its_crawl_is_no_failure_of_the_site() -> None:
    other = "https://other.example"
    moved = {f"{SITE}/{name}": Redirect(f"{other}/{name}") for name in "abcdef"}
    here = Worker("*=100:100", pages={**moved, f"{other}/a": "<p>Words</p>", f"{SITE}/g": PAGES[f"{SITE}/g"]})
    for name in "abcdef":
        given = delivery(f"/{name}", deadline=here.clock.monotonic() + 60.0)
        task = given.message.model_copy(update={"hosts": ["example.com"]})
        assert here.batch([replace(given, message=task)]) == [Done()]
        failure = here.result().failure
        assert failure is not None
        assert failure.code == "other_host"
    assert here.handle("/g") == [Done()]
    assert here.result().failure is None
    assert not [url for url in here.fetcher.requested if url.startswith(other)]
