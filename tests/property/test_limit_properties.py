"""Request limits under any schedule of requests, compared with an exact sliding window."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from indexmill.contracts.identity import CallerContext
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.limits.enforcer import LimitUse
from indexmill.platform.limits.policy import (
    CompositeStrategy,
    FairShareStrategy,
    MembershipTierStrategy,
    RateLimit,
    UnreadableLimits,
    claimed,
    compact,
)
from indexmill.platform.limits.window import SLOTS, slot_at
from tests.support.limits import (
    CALLER,
    INTERNAL,
    NO_TIER,
    OTHER,
    SERVICE,
    JumpingClock,
    Process,
    exact,
    process,
    worst_window,
)
from tests.support.limits import settings as limits
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryLimits

MOST, WINDOW_S = 6, 60
SLOT_S = WINDOW_S / SLOTS
PAUSES = st.one_of(
    st.sampled_from([0.0, 0.25, 1.0, 9.0, 59.0, 60.0, 61.0]), st.floats(0, 70, allow_nan=False, width=32)
)
SCHEDULE = st.lists(st.tuples(PAUSES, st.integers(0, 2)), max_size=80)
"""Pauses, and which of three processes is asked."""
MANY = settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))


class Run:
    """Three processes on one store, and when their requests were admitted."""

    def __init__(self, **given: str) -> None:
        self.store, self.clock = InMemoryLimits(), FrozenClock()
        self.processes = [process(self.store, self.clock, limits(**given)) for _ in range(3)]
        self.time = 0.0
        self.times: list[float] = []
        self.decisions: list[LimitUse | int | None] = []

    def ask(self, pause: float, at: int, ctx: CallerContext = CALLER) -> LimitUse | int | None:
        self.clock.tick(pause)
        # As the clock counts: in microseconds.
        self.time = self.clock.now().timestamp()
        found = self.processes[at].ask(ctx)
        self.times.append(self.time)
        self.decisions.append(found)
        return found

    @property
    def admitted(self) -> list[float]:
        return [
            time for time, each in zip(self.times, self.decisions, strict=True) if isinstance(each, LimitUse)
        ]


@pytest.mark.shows("L1", "L4", "L7")
@given(SCHEDULE)
@MANY
def test_no_window_has_more_than_the_limit_and_each_request_is_refused_only_for_the_stated_error(
    schedule: list[tuple[float, int]],
) -> None:
    run = Run()
    for pause, at in schedule:
        admitted = run.admitted
        now = (run.clock.now().timestamp() + pause) if pause else run.clock.now().timestamp()
        found = run.ask(pause, at)
        if isinstance(found, int):
            # Exact is what an exact window that is a slot longer would refuse, too.
            assert sum(now - WINDOW_S - SLOT_S - 0.011 <= each for each in admitted) >= MOST
    assert worst_window(run.admitted, WINDOW_S) <= MOST


@pytest.mark.shows("L4")
@given(st.lists(st.tuples(st.integers(0, 70), st.integers(0, 2)), max_size=80))
@MANY
def test_requests_at_the_beginnings_of_slots_are_decided_as_by_a_window_of_sixty_one_slots(
    schedule: list[tuple[int, int]],
) -> None:
    """In whole slots the error has one value, so that each decision can be compared."""
    run = Run()
    for pause, at in schedule:
        run.ask(float(pause), at)
    expected = exact([round(time) for time in run.times], WINDOW_S + 1, MOST)
    assert [isinstance(each, LimitUse) for each in run.decisions] == expected


@pytest.mark.shows("L2")
@given(SCHEDULE, SCHEDULE)
@MANY
def test_refused_requests_never_change_a_later_decision(
    schedule: list[tuple[float, int]], after: list[tuple[float, int]]
) -> None:
    with_refusals, without = Run(), Run()
    passed = 0.0
    for pause, at in schedule + after:
        found = with_refusals.ask(pause, at)
        passed += pause
        if isinstance(found, LimitUse):
            assert isinstance(without.ask(passed, at), LimitUse)
            passed = 0.0


@pytest.mark.shows("L3", "L8", "L9")
@given(SCHEDULE)
@MANY
def test_silence_restores_the_limit_and_retry_after_is_truthful(schedule: list[tuple[float, int]]) -> None:
    run = Run()
    for pause, at in schedule:
        found = run.ask(pause, at)
        if isinstance(found, int):
            assert found >= 1
            # A process that knows nothing is asked at exactly that time.
            run.clock.tick(found)
            assert isinstance(process(run.store, run.clock).ask(), LimitUse)
            break
    run.clock.tick(WINDOW_S + 2 * SLOT_S)
    again = [run.ask(0.0, at % 3) for at in range(MOST + 1)]
    left = [each.remaining for each in again if isinstance(each, LimitUse)]
    assert left == list(range(MOST - 1, -1, -1))
    assert isinstance(again[-1], int)


@pytest.mark.shows("L9")
@given(st.lists(st.tuples(st.floats(0, 0.4), st.integers(0, 2)), max_size=20))
def test_remaining_falls_while_nothing_leaves_the_window(schedule: list[tuple[float, int]]) -> None:
    run = Run()
    found = [run.ask(pause, at) for pause, at in schedule]
    left = [each.remaining for each in found if isinstance(each, LimitUse)]
    assert all(low <= high for high, low in pairwise(left))
    assert all(each >= 0 for each in left)


@pytest.mark.shows("L5")
@pytest.mark.fault("F65")
@given(st.lists(st.tuples(PAUSES, st.integers(0, 2), st.sampled_from([0, 0, 0, -300, -7, 300])), max_size=60))
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_clocks_that_jump_neither_admit_more_nor_lock_out(schedule: list[tuple[float, int, int]]) -> None:
    """Each process has a clock of its own that jumps; the store's is right and tells the time."""
    true = FrozenClock()
    clocks = [JumpingClock() for _ in range(3)]

    # Its answers tell the time, to the second.
    store = InMemoryLimits(true)
    owns = [StoreClock(clock) for clock in clocks]
    running = [process(store, clock, own=own) for clock, own in zip(clocks, owns, strict=True)]
    admitted: list[float] = []
    for pause, at, jump in schedule:
        for clock in (true, *clocks):
            clock.tick(pause)
        clocks[at].jump(jump)
        if running[at].admits():
            admitted.append(true.now().timestamp())
    # Clocks differ by three seconds at most: a window may be so much shorter.
    assert worst_window(admitted, WINDOW_S - 4) <= MOST
    for clock in (true, *clocks):
        clock.tick(WINDOW_S + 6)
    assert running[0].admits()


@pytest.mark.shows("L6")
@given(st.lists(st.tuples(PAUSES, st.integers(0, 2), st.booleans()), max_size=80))
def test_a_callers_decisions_do_not_depend_on_another(schedule: list[tuple[float, int, bool]]) -> None:
    both, alone = Run(), Run()
    passed = 0.0
    for pause, at, other in schedule:
        passed += pause
        found = both.ask(pause, at, OTHER if other else CALLER)
        if not other:
            assert alone.ask(passed, at) == found
            passed = 0.0


@pytest.mark.shows("L11")
@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 40))
def test_a_limit_that_changes_keeps_what_was_admitted(before: int, after: int, asked: int) -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    old = process(store, clock, limits(rate_pro=str(before)))
    new = process(store, clock, limits(rate_pro=str(after)))
    admitted = sum(old.admits() for _ in range(asked))
    more = sum(new.admits() for _ in range(40))
    assert admitted == min(asked, before)
    assert more == max(0, after - admitted)
    # The process with the older limit, until it is replaced, admits no more than that.
    assert sum(old.admits() for _ in range(40)) == max(0, before - admitted - more)


def test_a_caller_whose_window_changes_keeps_its_count() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here = process(store, clock)
    without_tier = CallerContext(CALLER.caller_id)
    assert sum(here.admits(without_tier) for _ in range(4)) == 4
    assert sum(here.admits() for _ in range(10)) == 2
    clock.tick(121)
    assert sum(here.admits() for _ in range(10)) == 6


@pytest.mark.shows("L10", "L12")
@given(st.integers(1, 200))
@settings(max_examples=50, deadline=None)
def test_active_callers_are_counted_exactly_and_their_floors_may_exceed_the_capacity(callers: int) -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here, there = process(store, clock), process(store, clock)
    for at in range(callers):
        for each in (here, there):
            each.ask(CallerContext(f"caller-{at}"))
    clock.tick(6)
    # A tenth request of one key, and callers with a tier or of the internal pool, do not count.
    for ctx in (CallerContext("caller-0"), CALLER, INTERNAL):
        here.ask(ctx)
    counters = store.shared(SERVICE).active["work"]
    assert sum(counters.values()) == callers
    share = here.enforcer._strategy.get_limit(NO_TIER)
    assert share is not None
    base = max(5, 100 // callers)
    assert (share.requests, share.most) == (base, int(base * 1.5))
    # Up to capacity / floor callers the shares fit the capacity; with more, the queues are the bound.
    assert (share.requests * callers <= 100) == (callers <= 20)
    clock.tick(4_200)
    assert here.ask(NO_TIER) is not None
    again = here.enforcer._strategy.get_limit(NO_TIER)
    assert again is not None
    assert again.requests == 100


@pytest.mark.shows("L12")
def test_a_caller_stays_active_for_an_hour_and_is_counted_once() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here = process(store, clock)
    for _ in range(30):
        here.ask(CallerContext("busy"))
        here.ask(CallerContext(f"guest-{clock.now()}"))
        clock.tick(601)
        assert 1 <= (here.enforcer._active.count("work") or 0) <= 8


def test_three_active_callers_have_a_third_each() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here = process(store, clock, limits(fair_share="capacity=3000,floor=50"))
    callers = [CallerContext(f"caller-{at}") for at in range(3)]
    for ctx in callers:
        here.ask(ctx)
    clock.tick(4_000)
    for ctx in callers:
        here.ask(ctx)
    clock.tick(6)
    admitted = dict.fromkeys(callers_ids := [ctx.caller_id for ctx in callers], 1)
    for at in range(9_000):
        ctx = callers[at % 3]
        admitted[ctx.caller_id] += here.admits(ctx)
        clock.tick(0.1)
    share = sum(admitted.values()) / 3
    assert all(abs(admitted[each] - share) <= share / 100 for each in callers_ids)
    assert share == 1_500


@pytest.mark.shows("L13")
@pytest.mark.parametrize(
    ("ctx", "limit"),
    [
        (INTERNAL, RateLimit(1_000, 3600, 0, "internal")),
        (CallerContext("s", caller_type="service", tier="pro"), RateLimit(1_000, 3600, 0, "internal")),
        (NO_TIER, RateLimit(500, 3600, 250, "fair_share")),
        (CallerContext("u", caller_type="user"), RateLimit(500, 3600, 250, "fair_share")),
        (CallerContext("p", tier="pro"), None),
        (
            CallerContext("c", raw_claims={"rate_limits": {"requests": 1, "window_seconds": 1}}),
            RateLimit(1, 1, 0, "claims"),
        ),
    ],
)
def test_a_caller_has_the_limit_of_its_pool(ctx: CallerContext, limit: RateLimit | None) -> None:
    shares = FairShareStrategy(capacity=2_000, floor=50)
    tiers = MembershipTierStrategy("scraper", {"pro": None})
    strategy = CompositeStrategy(shares, tiers, lambda _bucket: 4, read_factor=10)
    assert strategy.get_limit(ctx) == limit
    assert strategy.get_limit(ctx, "read") == (limit and limit.times(10))


LIMIT = {"requests": 3, "window_seconds": 60}


@pytest.mark.fault("F50")
@pytest.mark.parametrize(
    "claim",
    [
        *("many", 5, ["a"], True),
        *({**LIMIT, "requests": each} for each in ("3", 0, -1, 3.0, True, None, 10**10)),
        *({**LIMIT, "window_seconds": each} for each in ("60", 0, 86_401, None)),
        *({**LIMIT, "burst": each} for each in (-1, "1", None)),
        {"requests": 3},
        {"scraper": 3},
        {"scraper": {"requests": 3}},
    ],
)
def test_claims_of_a_wrong_type_are_refused(claim: object) -> None:
    with pytest.raises(UnreadableLimits):
        claimed(claim)


def test_claims_pass_the_gateway_as_text_and_unknown_services_are_ignored() -> None:
    for claim in (LIMIT, {"scraper": {**LIMIT, "burst": 2}, "painting": "fast"}, {}, None):
        found = claimed(claim)
        assert claimed(compact(found)) == found
    assert claimed({"scraper": {**LIMIT, "burst": 2}})[SERVICE].most == 5
    assert claimed(LIMIT)["embedding"] == RateLimit(3, 60, 0, "claims")


@given(st.floats(1.7e9, 2e9), st.integers(1, 86_400))
def test_a_slot_ends_after_its_requests_and_a_sixtieth_of_the_window_later_at_most(
    now: float, window_s: int
) -> None:
    end = slot_at(now, window_s) / 100
    assert now <= end <= now + window_s / SLOTS + 0.011


@pytest.mark.shows("L14")
def test_a_store_that_is_lost_and_found_adds_one_local_limit_for_each_process() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    running: list[Process] = [process(store, clock) for _ in range(3)]
    before = sum(each.admits() for each in running)
    store.unavailable = True
    clock.tick(6)
    local = [sum(each.admits() for _ in range(20)) for each in running]
    assert local == [MOST] * 3
    floor = [sum(each.admits(NO_TIER) for _ in range(20)) for each in running]
    assert floor == [7] * 3  # the floor and its burst, as the active callers are unknown
    assert [each.enforcer.failures for each in running] == [1] * 3
    store.unavailable = False
    clock.tick(2)
    after = sum(each.admits() for each in running * 10)
    assert before + after == MOST
    assert before + after + sum(local) <= MOST + MOST * len(running)
