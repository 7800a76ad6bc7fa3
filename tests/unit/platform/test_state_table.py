"""The state table: values as they are stored, and for how long an owner leaves a table alone that failed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from indexmill.access.identify import Roots
from indexmill.platform.aws.state_table import ConditionFailed, StateTable, StoreClock, StoreUnavailable
from indexmill.platform.breakers import NAMES, BreakerState, BreakerStates
from indexmill.platform.limits.store import LimitStore
from indexmill.platform.progress import ProgressBoard, WorkProgress
from tests.support.limits import CALLER, process
from tests.twins.clock import FrozenClock
from tests.twins.dynamodb import MemoryDynamoDb
from tests.twins.state_table import InMemoryLimits

THROTTLED = ["ProvisionedThroughputExceededException", "RequestLimitExceeded", "ThrottlingException"]
FAILED = ["InternalServerError", "ResourceNotFoundException", "AccessDeniedException"]
WORK = WorkProgress(attempt=1, chunks_total=1_000, chunks_done=256, bytes=2_000)


@pytest.fixture
def client() -> MemoryDynamoDb:
    return MemoryDynamoDb()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


class OfAnotherService:
    """Answers with JSON that is no answer of DynamoDB."""

    def batch_get_item(self, **_: Any) -> dict[str, Any]:
        return {"message": "ok"}


def breakers_of_another() -> object:
    return BreakerStates("t", FrozenClock(), OfAnotherService()).read()


def patient(client: MemoryDynamoDb, clock: FrozenClock) -> StateTable:
    return StateTable("state", clock, client, quiet_s=30)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        *(("a", {"S": "a"}), (7, {"N": "7"}), (-1.25, {"N": "-1.25"}), (1e22, {"N": "1e+22"})),
        *((True, {"BOOL": True}), (b"\x00", {"B": b"\x00"}), ({"b", "a"}, {"SS": ["a", "b"]})),
        (1_773_483_720.123456, {"N": "1773483720.123456"}),
    ],
)
def test_a_value_is_read_as_it_was_put(
    client: MemoryDynamoDb, clock: FrozenClock, value: Any, stored: dict[str, Any]
) -> None:
    table = patient(client, clock)
    table.put("key", {"value": value})
    assert client.items["key"] == {"pk": {"S": "key"}, "value": stored}
    assert table.get("key") == {"pk": "key", "value": value}


@pytest.mark.parametrize("ask", [lambda: Roots("t", OfAnotherService()).find(["ann"]), breakers_of_another])
def test_an_answer_without_items_is_an_outage(ask: Callable[[], object]) -> None:
    with pytest.raises(StoreUnavailable):
        ask()


def test_an_expired_item_is_returned_to_those_who_ask_for_it(
    client: MemoryDynamoDb, clock: FrozenClock
) -> None:
    table = patient(client, clock)
    table.put("key", {"expires_at": int(clock.now().timestamp()) + 60})
    assert table.get("key") is not None
    clock.tick(60)
    assert (table.get("key"), table.read(["key"])) == (None, {})
    assert table.get("key", expired=True) is not None
    assert list(table.read(["key"], expired=True)) == ["key"]


@pytest.mark.parametrize("code", ["", *FAILED])
def test_each_owner_leaves_a_table_that_failed_alone_for_its_own_time(
    client: MemoryDynamoDb, clock: FrozenClock, code: str
) -> None:
    board = ProgressBoard("state", clock, client)
    limits = LimitStore("state", StoreClock(clock), client)
    breakers = BreakerStates("state", clock, client)
    board.put("job", WORK)
    client.unavailable, client.failing = not code, code
    board.put("job", WORK)
    for call in (lambda: limits.is_blocked("key"), breakers.read):
        with pytest.raises(StoreUnavailable):
            call()
    client.unavailable, client.failing = False, ""
    asked = client.count()
    assert board.get("job") is None
    with pytest.raises(StoreUnavailable):
        limits.is_blocked("key")
    assert client.count() == asked
    # Breakers ask again at once.
    assert breakers.read() == dict.fromkeys(NAMES, BreakerState())
    clock.tick(1.5)
    assert not limits.is_blocked("key")
    assert board.get("job") is None
    clock.tick(28.5)
    assert board.get("job") == WORK


@pytest.mark.parametrize("code", THROTTLED)
def test_a_table_that_throttles_is_asked_again_at_once(
    client: MemoryDynamoDb, clock: FrozenClock, code: str
) -> None:
    table = patient(client, clock)
    client.failing = code
    with pytest.raises(StoreUnavailable):
        table.get("key")
    client.failing = ""
    assert table.get("key") is None


def test_a_condition_that_does_not_hold_is_an_answer(client: MemoryDynamoDb, clock: FrozenClock) -> None:
    table = patient(client, clock)
    table.put("key", {"version": 1})
    for _ in range(2):
        with pytest.raises(ConditionFailed) as refused:
            table.put("key", {}, only_if="version = :known", values={":known": 2}, tells_old=True)
        assert refused.value.old == {"pk": "key", "version": 1}
    with pytest.raises(ConditionFailed) as refused:
        table.update("key", "REMOVE version", {":known": 2}, only_if="version = :known")
    assert refused.value.old is None
    assert table.get("key") == {"pk": "key", "version": 1}


@pytest.mark.parametrize("code", THROTTLED)
def test_limits_that_are_throttled_are_counted_alone_for_that_request_only(
    clock: FrozenClock, code: str
) -> None:
    store = InMemoryLimits()
    here = process(store, clock)
    store.client.failing = code
    for failures in (1, 2):
        before = store.calls
        assert here.admits(CALLER)
        assert (store.calls > before, here.enforcer.failures) == (True, failures)
    store.client.failing = ""
    assert here.admits(CALLER)
    assert here.enforcer.failures == 2
    assert sum(window.admitted for window in store.windows.values() if window) == 1


def test_an_answer_corrects_the_clock_of_the_owner_that_brings_one_to_correct() -> None:
    right, wrong = FrozenClock(), FrozenClock()
    wrong.tick(300)
    client = MemoryDynamoDb(right)
    corrected = StoreClock(wrong)
    StateTable("state", wrong, client).get("key")
    assert corrected.now() - right.now().timestamp() == 300
    StateTable("state", corrected, client).get("key")
    assert abs(corrected.now() - right.now().timestamp()) <= 1
