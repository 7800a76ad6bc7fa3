"""One suite for the states of breakers: the twin compares and sets as DynamoDB does."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest

from indexmill.platform.aws.state_table import StoreUnavailable
from indexmill.platform.breakers import NAMES, BreakerState, BreakerStates
from local.backends.ministack import MiniStack
from tests.support.state_table import dynamodb, new_table, unavailable
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryBreakers

OPEN = BreakerState(
    *(3, 1_700_000_000.25, 1_700_000_000.5, 1_700_000_030.5, 1_700_000_090.75),
    version=1,
    closed_at=1_600_000_000.5,
    refusal="It refuses us (HTTP 401).",
)


@dataclass
class Harness:
    states: BreakerStates
    unavailable: BreakerStates


@pytest.fixture(params=["twin", "dynamodb"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    if request.param == "twin":
        unreachable = InMemoryBreakers()
        unreachable.unavailable = True
        yield Harness(InMemoryBreakers(), unreachable)
        return
    server: MiniStack = request.getfixturevalue("ministack")
    client, clock = dynamodb(server), FrozenClock()
    yield Harness(
        BreakerStates(new_table(client), clock, client), BreakerStates("none", clock, unavailable())
    )


def test_what_never_failed_is_closed(harness: Harness) -> None:
    assert harness.states.read() == dict.fromkeys(NAMES, BreakerState())


def test_a_state_is_read_as_it_was_written(harness: Harness) -> None:
    assert harness.states.replace("index", BreakerState(), OPEN)
    assert harness.states.read() == {**dict.fromkeys(NAMES, BreakerState()), "index": OPEN}


def test_the_second_of_two_replacements_changes_nothing(harness: Harness) -> None:
    old = BreakerState()
    assert harness.states.replace("index", old, OPEN)
    assert not harness.states.replace("index", old, BreakerState(version=1))
    assert harness.states.read()["index"] == OPEN
    assert harness.states.replace("index", OPEN, OPEN.closed(5.0))
    assert not harness.states.replace("index", OPEN, OPEN)
    assert harness.states.read()["index"] == BreakerState(version=2, closed_at=5.0)


@pytest.mark.fault("F53")
def test_one_of_many_wins(harness: Harness) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda _: harness.states.replace("index", BreakerState(), OPEN), range(16)))
    assert won.count(True) == 1


def test_out_of_reach_both_calls_say_so(harness: Harness) -> None:
    with pytest.raises(StoreUnavailable):
        harness.unavailable.read()
    with pytest.raises(StoreUnavailable):
        harness.unavailable.replace("index", BreakerState(), OPEN)


@pytest.mark.parametrize("harness", ["dynamodb"], indirect=True)
def test_a_record_of_yesterday_is_ignored(harness: Harness) -> None:
    states = harness.states
    assert isinstance(states, BreakerStates)
    assert states.replace("index", BreakerState(), OPEN)
    assert isinstance(states._table._clock, FrozenClock)
    states._table._clock.tick(86_401)
    assert states.read()["index"] == BreakerState()
    assert states.replace("index", BreakerState(), OPEN)
    assert states.read()["index"] == OPEN


@pytest.mark.parametrize("harness", ["dynamodb"], indirect=True)
def test_a_record_of_the_release_before_is_read(harness: Harness) -> None:
    states = harness.states
    assert isinstance(states, BreakerStates)
    assert states.replace("embedding", BreakerState(), OPEN)
    states._table._dynamodb.update_item(
        TableName=states._table._name,
        Key={"pk": {"S": "breaker#embedding"}},
        UpdateExpression="REMOVE closed_at, refusal",
    )
    assert states.read()["embedding"] == replace(OPEN, closed_at=0.0, refusal="")
