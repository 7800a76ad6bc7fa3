"""One suite for the store of request limits: the twin decides as DynamoDB does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from indexmill.platform.aws.state_table import StoreClock, StoreUnavailable
from indexmill.platform.http.guard import Guard
from indexmill.platform.limits.enforcer import CallerBlocked, InMaintenance
from indexmill.platform.limits.store import LimitStore
from indexmill.platform.limits.window import RequestAdmission, Window
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock
from local.backends.ministack import MiniStack
from tests.support.limits import CALLER, NO_TIER, OTHER, SERVICE, JumpingClock, process, settings
from tests.support.state_table import direct, dynamodb, new_table, unavailable
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryLimits

KEY = f"{SERVICE}#work#{CALLER.caller_id}"
BLIND = RequestAdmission(slot=1_000, most=2, ceiling=2, expires_at=9_999_999_999)


@dataclass
class Harness:
    store: LimitStore
    unavailable: LimitStore
    block: Callable[[str], Any]
    announce: Callable[[str], Any]
    """A maintenance."""
    lose: Callable[[], Any]
    """Everything that is stored."""


@pytest.fixture(params=["twin", "dynamodb", "direct"])
def harness(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    if request.param == "twin":
        twin, unreachable = InMemoryLimits(), InMemoryLimits()
        unreachable.unavailable = True
        yield Harness(twin, unreachable, twin.block, twin.announce, twin.client.items.clear)
        return
    server: MiniStack = request.getfixturevalue("ministack")
    client = dynamodb(server)
    table = new_table(client)

    def put(pk: str, **item: Any) -> None:
        client.put_item(TableName=table, Item={"pk": {"S": pk}, **item})

    def lose() -> None:
        for item in client.scan(TableName=table)["Items"]:
            client.delete_item(TableName=table, Key={"pk": item["pk"]})

    asked, away = dynamodb(server), unavailable()
    if request.param == "direct":
        asked, away = (direct(each, monkeypatch) for each in (server.endpoint, "http://127.0.0.1:1"))
    yield Harness(
        LimitStore(table, StoreClock(SystemClock()), asked),
        LimitStore("none", StoreClock(SystemClock()), away),
        lambda key: put(f"door#{key}", blocked={"S": "abuse"}),
        lambda text: put("door#maintenance", message={"S": text}),
        lose,
    )
    asked.close()


def test_the_first_request_makes_the_window(harness: Harness) -> None:
    assert harness.store.admit(KEY, BLIND) == (True, None)
    assert harness.store.read([KEY, "none"], [])[0] == {KEY: Window(1, {1_000: 1}, 2, 2)}


def test_the_stored_ceiling_bounds_who_knows_nothing(harness: Harness) -> None:
    assert [harness.store.admit(KEY, BLIND)[0] for _ in range(3)] == [True, True, False]
    assert harness.store.admit(KEY, BLIND) == (False, Window(2, {1_000: 2}, 2, 2))


def test_a_ceiling_of_a_higher_limit_bounds_no_lower_one(harness: Harness) -> None:
    assert harness.store.admit(KEY, RequestAdmission(1_000, 50, 50, 9_999_999_999))[0]
    assert not harness.store.admit(KEY, BLIND)[0]


def test_who_knows_all_slots_sets_the_ceiling_and_drops_what_has_expired(harness: Harness) -> None:
    harness.store.admit(KEY, BLIND)
    wish = RequestAdmission(7_000, 5, 6, 9_999_999_999, (1, 5), (1_000,), 44)
    assert harness.store.admit(KEY, wish) == (True, Window(1, {1_000: 1}, 2, 2))
    assert harness.store.read([KEY], [])[0][KEY] == Window(2, {7_000: 1}, 6, 5, 44)
    late = harness.store.admit(KEY, RequestAdmission(7_000, 5, 6, 9_999_999_999, (3, 5)))
    assert late == (False, Window(2, {7_000: 1}, 6, 5, 44))


def test_slots_are_forgotten(harness: Harness) -> None:
    harness.store.admit(KEY, BLIND)
    harness.store.forget(KEY, [1_000])
    assert harness.store.read([KEY], [])[0][KEY].slots == {}


def test_a_blocked_caller_is_never_admitted(harness: Harness) -> None:
    harness.block(KEY)
    assert harness.store.is_blocked(KEY)
    assert not harness.store.is_blocked("somebody#else")
    assert harness.store.admit(KEY, BLIND) == (False, Window(blocked=True))
    here = process(harness.store, SystemClock())
    for _ in range(2):
        with pytest.raises(CallerBlocked):
            here.enforcer.check(CALLER, "work")
    assert here.admits(OTHER)
    unlimited = process(harness.store, SystemClock(), settings(rate_pro="unlimited"))
    with pytest.raises(CallerBlocked):
        unlimited.enforcer.check(CALLER, "work")
    assert unlimited.ask(OTHER) is None


def test_a_block_is_seen_with_the_next_request(harness: Harness) -> None:
    here = process(harness.store, SystemClock())
    assert here.admits()
    harness.block(KEY)
    with pytest.raises(CallerBlocked):
        here.enforcer.check(CALLER, "work")


def test_active_callers_are_counted_by_their_last_ten_minutes(harness: Harness) -> None:
    store = harness.store
    assert store.move_active(SERVICE, "work", None, 7, []) == {7: 1}
    assert store.move_active(SERVICE, "work", None, 7, []) == {7: 2}
    assert store.move_active(SERVICE, "work", 7, 8, []) == {7: 1, 8: 1}
    assert store.move_active(SERVICE, "read", None, 8, []) == {8: 1}
    assert store.move_active(SERVICE, "work", None, 99, [7, 8]) == {99: 1}
    assert store.shared(SERVICE).active == {"work": {99: 1}, "read": {8: 1}}
    assert store.shared("chunking").active == {}


def test_maintenance_is_read_with_the_active_callers(harness: Harness) -> None:
    assert harness.store.shared(SERVICE).maintenance is None
    harness.announce("Back at ten.")
    assert harness.store.shared(SERVICE).maintenance == "Back at ten."


def test_a_closed_door_costs_one_request_of_the_table_in_five_seconds(ministack: MiniStack) -> None:
    client, sent = dynamodb(ministack), []
    table, clock = new_table(client), FrozenClock()
    client.put_item(TableName=table, Item={"pk": {"S": "door#maintenance"}, "message": {"S": "Back at ten."}})
    # After the signature, so for each request that is really sent.
    client.meta.events.register("before-send.dynamodb", lambda event_name, **_: sent.append(event_name))
    own = StoreClock(clock)
    store = LimitStore(table, own, client)
    guard = Guard(process(store, clock, own=own).enforcer, Observability("test", level="ERROR"))
    for seconds, requests in ((0, 1), (1, 1), (6, 2)):
        clock.tick(seconds)
        for _ in range(20):
            with pytest.raises(InMaintenance):
                guard.enter(CALLER, "POST", "/orchestrator/jobs")
        assert sent == ["before-send.dynamodb.BatchGetItem"] * requests
    assert [item["pk"]["S"] for item in client.scan(TableName=table)["Items"]] == ["door#maintenance"]


def test_out_of_reach_every_call_fails(harness: Harness) -> None:
    store = harness.unavailable
    for call in (
        lambda: store.admit(KEY, BLIND),
        lambda: store.forget(KEY, [1]),
        lambda: store.is_blocked(KEY),
        lambda: store.move_active(SERVICE, "work", None, 1, []),
        lambda: store.read([KEY], [SERVICE]),
    ):
        with pytest.raises(StoreUnavailable):
            call()


@pytest.mark.shows("L1", "L7")
def test_many_processes_admit_no_more_than_one_would(harness: Harness) -> None:
    clock = FrozenClock()
    processes = [process(harness.store, clock) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        admitted = list(pool.map(lambda at: processes[at % 8].admits(), range(64)))
    assert sum(admitted) == 6


def test_one_request_to_the_store_admits_and_a_refusal_that_is_known_needs_none() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here, there = process(store, clock), process(store, clock)
    assert here.admits()
    assert store.calls == 2  # with that of the active callers, which is made every five seconds
    assert [here.admits() for _ in range(5)] == [True] * 5
    assert store.calls == 7
    assert not any(here.admits() for _ in range(100))
    assert store.calls == 7
    # A process that knows nothing needs one request to learn it.
    assert not any(there.admits() for _ in range(100))
    assert store.calls == 9


def test_a_process_that_knows_nothing_admits_by_one_request_and_near_the_limit_by_two() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    for at in range(5):
        clock.tick(0.5 * (at == 3))
        before = store.calls
        assert process(store, clock).admits()
        assert store.calls == before + 2
    clock.tick(61)
    # The stored ceiling is that of an empty window: exact only for a process that has read all slots.
    assert [process(store, clock).admits() for _ in range(7)] == [True] * 6 + [False]


@pytest.mark.shows("L2")
def test_refused_requests_change_nothing(harness: Harness) -> None:
    clock = FrozenClock()
    here, there = process(harness.store, clock), process(harness.store, clock)
    assert [here.admits() for _ in range(6)] == [True] * 6
    stored = harness.store.read([KEY], [])
    for _ in range(20):
        assert not here.admits()
        assert not there.admits()
        clock.tick(1)
    assert harness.store.read([KEY], []) == stored


@pytest.mark.shows("L6")
def test_callers_do_not_share_a_limit(harness: Harness) -> None:
    here = process(harness.store, FrozenClock())
    while here.admits():
        pass
    assert here.admits(OTHER)
    assert here.admits(NO_TIER)


def test_a_lost_table_forgets_and_is_exact_again(harness: Harness) -> None:
    clock = FrozenClock()
    here, there = process(harness.store, clock), process(harness.store, clock)
    assert all(process(harness.store, clock).admits() for _ in range(4))
    clock.tick(70)
    assert here.admits()
    assert there.admits()
    harness.lose()
    clock.tick(1)
    admitted = sum(each.admits() for each in (here, there) * 10)
    assert admitted == 6


@pytest.mark.parametrize("harness", ["dynamodb", "direct"], indirect=True)
@pytest.mark.shows("L5")
@pytest.mark.fault("F65")
def test_the_clock_is_the_stores(harness: Harness) -> None:
    assert isinstance(harness.store, LimitStore)
    for wrong_by in (-300, 300):
        clock = JumpingClock()
        clock.jump((SystemClock().now() - clock.now()) / timedelta(seconds=1) + wrong_by)
        own = StoreClock(clock)
        store = LimitStore(harness.store._table._name, own, harness.store._table._dynamodb)
        store.shared(SERVICE)
        assert abs(own.now() - SystemClock().now().timestamp()) < 3


@pytest.mark.shows("S9")
def test_a_caller_that_is_blocked_while_at_its_limit_is_refused_as_blocked() -> None:
    store, clock = InMemoryLimits(), FrozenClock()
    here = process(store, clock)
    assert [here.admits() for _ in range(7)] == [True] * 6 + [False]
    store.block(KEY)
    clock.tick(1.1)
    with pytest.raises(CallerBlocked):
        here.ask()
