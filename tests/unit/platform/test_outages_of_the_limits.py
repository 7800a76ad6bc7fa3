"""Blocks and maintenance while the store of the limits is unavailable, and what a closed service costs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexmill.contracts.errors import ErrorCode
from indexmill.platform.http.guard import Guard
from indexmill.platform.limits.enforcer import KEPT_S, CallerBlocked, InMaintenance, RateLimited, key_of
from indexmill.platform.observability import Observability
from tests.support.limits import CALLER, SERVICE, Process, process
from tests.support.metrics import emitted
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryLimits

OTHER = replace(CALLER, caller_id="f" * 16)


@pytest.fixture
def store() -> InMemoryLimits:
    return InMemoryLimits()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def one(store: InMemoryLimits, clock: FrozenClock) -> Process:
    return process(store, clock)


def is_blocked(asked: Process, bucket: str = "work") -> bool:
    try:
        asked.ask(CALLER, bucket)
    except CallerBlocked:
        return True
    return False


def is_closed(asked: Process) -> bool:
    try:
        asked.enforcer.check_open()
    except InMaintenance:
        return True
    return False


def block(store: InMemoryLimits) -> None:
    for bucket in ("work", "read"):
        store.block(key_of(SERVICE, bucket, CALLER.caller_id))


@pytest.mark.fault("F58")
def test_a_blocked_caller_stays_blocked_without_the_store(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    block(store)
    assert is_blocked(one)
    store.unavailable = True
    # In every bucket, also in those in which it was not seen; others are served.
    assert is_blocked(one, "read")
    assert one.admits(OTHER)
    clock.tick(KEPT_S - 1)
    assert is_blocked(one)
    clock.tick(2)
    assert not is_blocked(one)


@pytest.mark.fault("F58")
def test_an_environment_that_saw_nothing_knows_nothing(store: InMemoryLimits, clock: FrozenClock) -> None:
    block(store)
    store.announce("moving")
    store.unavailable = True
    new = process(store, clock)
    assert not is_blocked(new)
    assert not is_closed(new)


def test_a_caller_who_is_served_again_is_remembered_as_such(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    block(store)
    assert is_blocked(one)
    store.client.items.clear()
    clock.tick(2)
    assert not is_blocked(one)
    store.unavailable = True
    assert not is_blocked(one)


def test_the_ten_minutes_begin_with_the_last_answer(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    block(store)
    assert is_blocked(one)
    clock.tick(KEPT_S - 1)
    assert one.admits(OTHER)
    store.unavailable = True
    clock.tick(KEPT_S - 1)
    assert is_blocked(one)


def test_at_most_ten_thousand_are_remembered_and_the_oldest_is_forgotten(
    store: InMemoryLimits, one: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("indexmill.platform.limits.enforcer._MOST_REMEMBERED", 2)
    callers = [replace(CALLER, caller_id=f"{at:016x}") for at in range(3)]
    for ctx in callers:
        store.block(key_of(SERVICE, "work", ctx.caller_id))
        with pytest.raises(CallerBlocked):
            one.ask(ctx)
    store.unavailable = True
    assert one.admits(callers[0])
    for ctx in callers[1:]:
        with pytest.raises(CallerBlocked):
            one.ask(ctx)


@pytest.mark.fault("F58")
def test_maintenance_that_was_seen_stays_on_without_the_store(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    store.announce("moving")
    assert is_closed(one)
    store.unavailable = True
    clock.tick(60)
    assert is_closed(one)
    # Reads are answered.
    assert one.admits(bucket="read")
    clock.tick(KEPT_S)
    assert not is_closed(one)


def test_maintenance_ends_with_the_first_answer_without_it(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    store.announce("moving")
    assert is_closed(one)
    store.unavailable = True
    clock.tick(6)
    assert is_closed(one)
    store.unavailable = False
    store.announce(None)
    clock.tick(6)
    assert not is_closed(one)


def test_a_request_that_maintenance_refuses_costs_no_limit_and_no_further_request(
    store: InMemoryLimits, clock: FrozenClock, one: Process
) -> None:
    """Nor is the load read: a database that is being moved would not answer."""
    loads = 0

    def pressure(*_: object) -> None:
        nonlocal loads
        loads += 1

    guard = Guard(one.enforcer, Observability("test", level="ERROR"), pressure=pressure)
    store.announce("moving")
    for _ in range(50):
        with pytest.raises(InMaintenance):
            guard.enter(CALLER, "POST", "/orchestrator/jobs")
    assert (store.calls, store.windows, loads) == (1, {}, 0)
    clock.tick(6)
    with pytest.raises(InMaintenance):
        guard.enter(CALLER, "POST", "/orchestrator/jobs")
    assert (store.calls, store.windows, loads) == (2, {}, 0)
    store.announce(None)
    clock.tick(6)
    decision = guard.enter(CALLER, "POST", "/orchestrator/jobs")
    assert decision is not None
    assert (decision.remaining, loads) == (decision.limit - 1, 1)


@pytest.mark.parametrize(
    ("method", "path", "closed"),
    [
        ("POST", "/orchestrator/jobs", True),
        ("POST", "/orchestrator/uploads", True),
        ("POST", "/orchestrator/jobs/{job_id}/retry", True),
        ("POST", "/orchestrator/jobs/{job_id}/replay", True),
        ("POST", "/embedding/enqueue", True),
        ("POST", "/orchestrator/jobs/{job_id}/cancel", False),
        ("POST", "/embedding/search", False),
        ("GET", "/orchestrator/jobs", False),
    ],
)
def test_a_service_is_closed_for_work_and_nothing_else(
    store: InMemoryLimits, one: Process, method: str, path: str, closed: bool
) -> None:
    store.announce("We move the database.")
    guard = Guard(one.enforcer, Observability("test", level="ERROR"))
    if not closed:
        guard.enter(CALLER, method, path)
        return
    with pytest.raises(InMaintenance) as caught:
        guard.enter(CALLER, method, path)
    assert (caught.value.code, caught.value.http_status) == (ErrorCode.MAINTENANCE, 503)
    assert (caught.value.message, caught.value.retry_after) == ("We move the database.", 60)


def test_refusals_of_the_guard_are_counted_with_their_request(
    store: InMemoryLimits, clock: FrozenClock, one: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process may get no further request, so nothing is kept for a later one."""
    observability = Observability("test", level="ERROR")
    guard = Guard(one.enforcer, observability)
    while one.admits(CALLER):
        clock.tick(0.01)
    for _ in range(3):
        with pytest.raises(RateLimited):
            guard.enter(CALLER, "POST", "/embedding/search")
        observability.flush()
        assert emitted(capsys, "rate_limited_total") == [(1.0, {"bucket": "work", "tier": "pro"})]
    block(store)
    clock.tick(6)
    with pytest.raises(CallerBlocked):
        guard.enter(CALLER, "GET", "/orchestrator/jobs")
    observability.flush()
    assert emitted(capsys, "caller_blocked_total") == [(1.0, {})]


def test_each_call_that_the_store_did_not_answer_is_counted(
    store: InMemoryLimits, clock: FrozenClock, one: Process, capsys: pytest.CaptureFixture[str]
) -> None:
    observability = Observability("test", level="ERROR")
    guard = Guard(one.enforcer, observability)
    store.unavailable = True
    counted = 0.0
    for _ in range(2):
        before = store.calls
        guard.enter(CALLER, "POST", "/embedding/search")
        observability.flush()
        (found,) = emitted(capsys, "rate_limit_store_unavailable")
        assert found[0] >= 1
        counted += found[0]
        assert store.calls > before
        clock.tick(60)
    assert counted == one.enforcer.failures
