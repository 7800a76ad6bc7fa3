"""One suite for what is kept in the state table: the twins behave as DynamoDB does."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import boto3
import pytest

from indexmill.orchestrator.queries.stream import StreamPlaces
from indexmill.platform.progress import ProgressBoard, WorkProgress
from local.backends.ministack import MiniStack
from tests.support.ministack import REGION
from tests.twins.clock import FrozenClock
from tests.twins.dynamodb import MemoryDynamoDb
from tests.twins.state_table import InMemoryPlaces, InMemoryProgress

WORK = WorkProgress(attempt=1, chunks_total=1_000, chunks_done=256, bytes=2_000)
LATER = WorkProgress(attempt=2, chunks_total=1_000, chunks_done=512, bytes=4_000)


@dataclass
class Parts:
    """Adapters under test, on one clock."""

    clock: FrozenClock
    board: ProgressBoard
    windows: Callable[[int], StreamPlaces]
    """With a limit; all count in the same place."""


def table(endpoint: str) -> tuple[Any, str]:
    """Return a client and the name of a fresh table."""
    make: Any = boto3.client
    client = make(
        "dynamodb",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    name = f"state-{uuid.uuid4().hex[:8]}"
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return client, name


@pytest.fixture(params=["twin", "dynamodb"])
def parts(request: pytest.FixtureRequest) -> Parts:
    clock = FrozenClock()
    if request.param == "twin":
        shared = MemoryDynamoDb()
        return Parts(clock, InMemoryProgress(clock), lambda limit: InMemoryPlaces(limit, clock, shared))
    server: MiniStack = request.getfixturevalue("ministack")
    client, name = table(server.endpoint)
    return Parts(
        clock,
        ProgressBoard(name, clock, client),
        lambda limit: StreamPlaces(name, limit, clock, client),
    )


def test_progress_is_what_was_put_last(parts: Parts) -> None:
    assert parts.board.get("a") is None
    parts.board.put("a", WORK)
    parts.board.put("b", LATER)
    assert (parts.board.get("a"), parts.board.get("b")) == (WORK, LATER)
    parts.board.put("a", LATER)
    assert parts.board.get("a") == LATER


def test_progress_is_shown_for_a_day(parts: Parts) -> None:
    parts.board.put("a", WORK)
    parts.clock.tick(24 * 3600 - 1)
    assert parts.board.get("a") == WORK
    parts.clock.tick(1)
    assert parts.board.get("a") is None


def test_there_are_as_many_places_as_the_limit_says(parts: Parts) -> None:
    windows = parts.windows(3)
    places = [windows.enter(30) for _ in range(5)]
    assert [place is not None for place in places] == [True, True, True, False, False]
    assert len({place for place in places if place}) == 3
    windows.leave(places[1] or "")
    assert windows.enter(30) is not None
    assert windows.enter(30) is None


def test_a_place_is_given_back_once(parts: Parts) -> None:
    windows = parts.windows(2)
    first, second = windows.enter(30), windows.enter(30)
    for _ in range(2):
        windows.leave(first or "")
    assert windows.enter(30) is not None
    assert windows.enter(30) is None
    assert second is not None


def test_no_place_outlives_the_process_that_died_with_it_for_long(parts: Parts) -> None:
    windows = parts.windows(2)
    assert windows.enter(30)
    parts.clock.tick(20)
    assert windows.enter(30)
    assert windows.enter(30) is None
    parts.clock.tick(13)
    assert windows.enter(30) is not None
    assert windows.enter(30) is None
    parts.clock.tick(20)
    assert windows.enter(30) is not None


def test_a_limit_of_zero_admits_none(parts: Parts) -> None:
    assert parts.windows(0).enter(30) is None


def test_many_at_once_never_take_more_than_there_is(ministack: MiniStack) -> None:
    client, name = table(ministack.endpoint)
    clock = FrozenClock()
    with ThreadPoolExecutor(8) as pool:
        windows = [StreamPlaces(name, 5, clock, client) for _ in range(24)]
        places = list(pool.map(lambda each: each.enter(30), windows))
    assert sum(place is not None for place in places) == 5


def test_an_unavailable_table_shows_nothing_and_admits_none(
    ministack: MiniStack, caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = table(ministack.endpoint)
    clock = FrozenClock()
    board = ProgressBoard("no-such-table", clock, client)
    board.put("a", WORK)
    assert board.get("a") is None
    # After the first failure it is left alone for a while: a time-out each time would cost too much.
    assert len(caplog.records) == 1
    clock.tick(30)
    assert board.get("a") is None
    assert len(caplog.records) == 2
    windows = StreamPlaces("no-such-table", 5, clock, client)
    assert windows.enter(30) is None
    windows.leave("1#a")


def test_an_item_that_was_tampered_with_is_no_progress(ministack: MiniStack) -> None:
    client, name = table(ministack.endpoint)
    clock = FrozenClock()
    end = {"expires_at": {"N": str(int(clock.now().timestamp()) + 60)}}
    bad: list[dict[str, Any]] = [{}, {"attempt": {"N": "1"}}, {"expires_at": {"S": "soon"}}]
    for item in bad:
        client.put_item(TableName=name, Item={"pk": {"S": "progress#a"}, **end, **item})
        assert ProgressBoard(name, clock, client).get("a") is None
