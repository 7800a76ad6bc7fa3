"""One suite for the states of sites: the twin compares and sets as DynamoDB does."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from indexmill.contracts.errors import DomainBusy, ErrorCode, failure
from indexmill.platform.aws.state_table import StoreClock, StoreUnavailable
from indexmill.platform.security.urls import DomainRates
from indexmill.platform.time import SystemClock
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.token_bucket import HostState, HostStates
from local.backends.ministack import MiniStack
from tests.support.state_table import dynamodb, new_table, unavailable
from tests.twins.state_table import InMemoryHosts

STATE = HostState(12.5, {"m": 14.25}, {"r": 40.125}, 2, 99.0, "http_503")
URL = "https://example.com/page"


@dataclass
class Harness:
    states: HostStates
    unavailable: HostStates

    def limiter(self, rates: str = "*=4:3", states: HostStates | None = None) -> RateLimiter:
        """A worker's pace."""
        return RateLimiter(DomainRates.parse(rates), states or self.states, StoreClock(SystemClock()))


@pytest.fixture(params=["twin", "dynamodb"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "twin":
        unreachable = InMemoryHosts()
        unreachable.unavailable = True
        yield Harness(InMemoryHosts(), unreachable)
        return
    server: MiniStack = request.getfixturevalue("ministack")
    client, clock = dynamodb(server), StoreClock(SystemClock())
    yield Harness(HostStates(new_table(client), clock, client), HostStates("none", clock, unavailable()))


def turn(pace: RateLimiter, url: str = URL, key: str | None = None) -> None:
    """Take a turn and end the request at once."""
    fetch = pace.page(time.monotonic() + 30, key)
    asyncio.run(fetch.acquire(url))
    fetch.end(None)


def test_a_state_is_read_as_it_was_written(harness: Harness) -> None:
    assert harness.states.replace("example.com", 0, STATE) is None
    assert harness.states.replace("example.com", 0, HostState()) == (1, STATE)
    assert harness.states.replace("example.com", 1, HostState()) is None
    assert harness.states.replace("example.com", 1, STATE) == (2, HostState())
    assert harness.states.replace("other.org", 5, STATE) == (0, HostState())


@pytest.mark.fault("F57")
def test_without_the_store_no_request_is_sent(harness: Harness) -> None:
    with pytest.raises(StoreUnavailable):
        harness.unavailable.replace("example.com", 0, STATE)
    with pytest.raises(DomainBusy) as caught:
        turn(harness.limiter(states=harness.unavailable))
    assert caught.value.code == ErrorCode.DOMAIN_BUSY
    assert caught.value.retry_after is not None
    # A site without a limit needs no store.
    turn(harness.limiter("*=unlimited", states=harness.unavailable))


def test_a_site_without_a_limit_costs_nothing() -> None:
    states = InMemoryHosts()
    turn(RateLimiter(DomainRates.parse("*=1,example.com=unlimited"), states, StoreClock(SystemClock())))
    assert states.writes == 0


def test_a_request_costs_one_write() -> None:
    states = InMemoryHosts()
    pace = RateLimiter(DomainRates.parse("*=1000:1000"), states, StoreClock(SystemClock()))
    for _ in range(20):
        turn(pace)
    pace.flush()
    assert states.writes == 20


def test_eight_workers_keep_to_the_rate_together(harness: Harness) -> None:
    rate, seconds = 8.0, 2.0
    sent: list[float] = []
    pause = threading.Event()

    def work(number: int) -> None:
        pace, until = harness.limiter(f"*={rate}:3"), time.monotonic() + seconds
        for at in range(10_000):
            now = time.monotonic()
            if now > until:
                return
            try:
                turn(pace, key=f"{number}-{at}")
            except DomainBusy:
                pause.wait(0.02)  # a message that comes back too early, again and again
            else:
                sent.append(now)

    with ThreadPoolExecutor(8) as workers:
        list(workers.map(work, range(8)))
    sent.sort()
    # The time is read before the turn: it may be that of one which waited for the store.
    slack_s = 0.5
    for first, start in enumerate(sent):
        for last in range(first, len(sent)):
            assert last - first + 1 <= 3 + (sent[last] - start + slack_s) * rate


def test_a_site_that_failed_in_one_worker_is_left_alone_by_the_others(harness: Harness) -> None:
    here, there = harness.limiter(), harness.limiter()
    for _ in range(3):
        fetch = here.page(time.monotonic() + 30)
        asyncio.run(fetch.acquire(URL))
        fetch.end(failure(ErrorCode.CONNECTION_REFUSED))
    here.flush()
    with pytest.raises(DomainBusy) as caught:
        turn(there)
    assert caught.value.code == ErrorCode.DOMAIN_FAILING
    assert caught.value.retry_after is not None
    assert caught.value.retry_after > 30
    turn(there, "https://example.org/")


def test_an_answer_that_says_no_is_no_failure_of_the_site(harness: Harness) -> None:
    pace = harness.limiter("*=100:100")
    for _ in range(5):
        fetch = pace.page(time.monotonic() + 30)
        asyncio.run(fetch.acquire(URL))
        fetch.end(failure(ErrorCode.ROBOTS_DISALLOWED))
    pace.flush()
    turn(pace)
