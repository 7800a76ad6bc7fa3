"""Whatever happens, no window of a site sees more requests than its rate allows."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field
from heapq import heappop, heappush

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexmill.platform.security.urls import DomainRate
from indexmill.scraper.token_bucket import Ended, HostState, TokenRequest, finish, take

RATES = st.builds(DomainRate, st.sampled_from([0.5, 1.0, 3.0]), st.integers(1, 4))


@dataclass
class Site:
    """A site with messages that want a page of it, each at its time."""

    rate: DomainRate
    state: HostState = field(default_factory=HostState)
    sent: list[float] = field(default_factory=list)
    waits: dict[int, int] = field(default_factory=dict)

    def run(self, arrivals: list[float], late: list[float], took_s: list[float]) -> None:
        """Send a request for each arrival; a message comes back `late` after its wait at most."""
        events = [(at, number, "asks") for number, at in enumerate(arrivals)]
        events.sort()
        while events:
            now, number, what = heappop(events)
            if what == "ends":
                self.state = finish(self.state, now, [Ended(str(number), failed=False)])
                continue
            attempt = TokenRequest(str(number), now + 30.0, key=f"m{number}")
            self.state, refusal = take(self.state, now, self.rate, attempt)
            if refusal is None:
                self.sent.append(now)
                heappush(events, (now + took_s[number % len(took_s)], number, "ends"))
            else:
                assert refusal.wait_s > 0
                self.waits[number] = self.waits.get(number, 0) + 1
                assert self.waits[number] < 50
                heappush(events, (now + refusal.wait_s + late[number % len(late)], number, "asks"))

    def check(self) -> None:
        """Compare every window between two requests with the rate."""
        for first, start in enumerate(self.sent):
            for last in range(first, len(self.sent)):
                allowed = self.rate.burst + (self.sent[last] - start) * self.rate.per_second
                assert last - first + 1 <= allowed + 1e-6


@pytest.mark.shows("X20")
@settings(max_examples=150)
@given(
    RATES,
    st.lists(st.floats(0, 20), min_size=1, max_size=40),
    st.lists(st.floats(0, 3), min_size=1, max_size=10),
    st.lists(st.floats(0, 4), min_size=1, max_size=10),
)
def test_no_window_sees_more_than_burst_and_rate(
    rate: DomainRate, arrivals: list[float], late: list[float], took_s: list[float]
) -> None:
    site = Site(rate)
    site.run(arrivals, late, took_s)
    assert len(site.sent) == len(arrivals)
    site.check()


@settings(max_examples=50)
@given(RATES, st.integers(1, 40))
def test_a_message_waits_once_when_it_comes_back_in_time(rate: DomainRate, count: int) -> None:
    site = Site(rate)
    site.run([0.0] * count, late=[0.0], took_s=[0.0])
    assert all(waits == 1 for waits in site.waits.values())
    assert len(site.waits) == max(0, count - rate.burst)
    site.check()
    # Nothing of the rate is left unused.
    assert site.sent[-1] == pytest.approx(max(0, count - rate.burst) * rate.interval_s, abs=1e-3)


def test_a_promised_request_is_not_overtaken() -> None:
    rate, state = DomainRate(1.0, 1), HostState()
    state, _ = take(state, 0.0, rate, TokenRequest("a", 1.0))
    state, refusal = take(state, 0.0, rate, TokenRequest("b", 1.0, key="b"))
    assert refusal is not None
    due = refusal.wait_s
    state = finish(state, due, [Ended("a", failed=False)])
    state, other = take(state, due, rate, TokenRequest("c", 9.0, key="c"))
    assert other is not None
    assert other.reason == "domain_busy"
    _, refusal = take(state, due + 0.5, rate, TokenRequest("b", 9.0, key="b"))
    assert refusal is None


def test_a_promise_that_is_not_taken_up_is_void_after_a_minute() -> None:
    rate, state = DomainRate(1.0, 1), HostState()
    state, _ = take(state, 0.0, rate, TokenRequest("a", 0.5))
    state, _ = take(state, 0.0, rate, TokenRequest("lost", 1.0, key="lost"))
    _, refusal = take(state, 30.0, rate, TokenRequest("b", 40.0))
    assert refusal is not None
    _, refusal = take(state, 62.0, rate, TokenRequest("b", 70.0))
    assert refusal is None


def test_a_crawl_delay_is_a_slower_rate_without_a_burst() -> None:
    rate, state, now = DomainRate(1.0, 3), HostState(), 0.0
    sent = []
    generator = random.Random(1)
    while len(sent) < 5:
        state, refusal = take(state, now, rate, TokenRequest(str(len(sent)), now + 1, delay_s=10.0))
        if refusal is None:
            sent.append(now)
        now += generator.uniform(0.1, 1.0)
    assert all(later - earlier >= 10.0 for earlier, later in itertools.pairwise(sent))


def failing(state: HostState, now: float, count: int, pause_s: int | None = None) -> HostState:
    return finish(state, now, [Ended(f"f{at}", failed=True, pause_s=pause_s) for at in range(count)])


def wait_s(state: HostState, now: float) -> float | None:
    _, refusal = take(state, now, DomainRate(1.0, 3), TokenRequest("x", now + 5, key="x"))
    return None if refusal is None else refusal.wait_s


@pytest.mark.shows("X20")
def test_a_site_that_fails_three_times_is_left_alone_and_then_probed() -> None:
    assert wait_s(failing(HostState(), 0.0, 2), 1.0) is None
    state = failing(HostState(), 0.0, 3)
    assert wait_s(state, 1.0) == pytest.approx(59.0)
    state, refusal = take(state, 61.0, DomainRate(1.0, 3), TokenRequest("probe", 70.0))
    assert refusal is None
    assert wait_s(state, 62.0) is not None, "one request at a time"
    again = finish(state, 63.0, [Ended("probe", failed=True)])
    assert wait_s(again, 63.0) == pytest.approx(120.0)
    healed = finish(state, 63.0, [Ended("probe", failed=False)])
    assert wait_s(healed, 63.0) is None
    assert (healed.failures, healed.cause) == (0, "")


def test_a_site_that_is_left_alone_says_why() -> None:
    state = finish(HostState(), 0.0, [Ended(str(at), failed=True, code=f"http_50{at}") for at in range(3)])
    _, refusal = take(state, 1.0, DomainRate(1.0, 3), TokenRequest("x", 5.0))
    assert refusal is not None
    assert (refusal.reason, refusal.cause) == ("domain_failing", "http_502")


def test_a_request_that_never_reached_its_site_changes_nothing_of_it() -> None:
    before = failing(HostState(), 0.0, 3)
    assert finish(before, 5.0, [Ended("x", failed=None)]) == before


def test_the_pause_grows_to_five_minutes_and_follows_retry_after() -> None:
    assert wait_s(failing(HostState(), 0.0, 20), 0.0) == pytest.approx(300.0)
    assert wait_s(failing(HostState(), 0.0, 1, pause_s=90), 0.0) == pytest.approx(90.0)
    assert wait_s(failing(HostState(), 0.0, 1, pause_s=10**7), 0.0) == pytest.approx(3_600.0)
