"""One suite for delivery logs: the twin keeps and drops records as DynamoDB does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from indexmill.platform.consumer.delivery_log import KEPT_S, DeliveryLog, DeliveryRecord
from local.backends.ministack import MiniStack
from tests.support.state_table import dynamodb, new_table, unavailable
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryDeliveryLog

RECORD = DeliveryRecord(receives=3, tries=2, crashes=1, tried_alone=True, last_error="http_503")


@dataclass
class Harness:
    log: DeliveryLog
    clock: FrozenClock
    unavailable: DeliveryLog
    """The same kind, out of reach."""


@pytest.fixture(params=["twin", "dynamodb"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    clock = FrozenClock()
    if request.param == "twin":
        unreachable = InMemoryDeliveryLog(clock)
        unreachable.unavailable = True
        yield Harness(InMemoryDeliveryLog(clock), clock, unreachable)
        return
    server: MiniStack = request.getfixturevalue("ministack")
    client = dynamodb(server)
    made = DeliveryLog(new_table(client), clock, client)
    yield Harness(made, clock, DeliveryLog("none", clock, unavailable()))


def test_a_note_is_read_as_it_was_written(harness: Harness) -> None:
    assert harness.log.read(["a"]) == {}
    plain = DeliveryRecord()
    harness.log.write({"a": RECORD, "b": plain})
    assert harness.log.read(["a", "b", "c", "a"]) == {"a": RECORD, "b": plain}


def test_a_later_note_replaces_an_earlier_one(harness: Harness) -> None:
    harness.log.write({"a": RECORD})
    harness.log.write({"a": DeliveryRecord(receives=4)})
    assert harness.log.read(["a"]) == {"a": DeliveryRecord(receives=4)}


def test_more_records_than_one_call_takes(harness: Harness) -> None:
    many = {f"m{at}": DeliveryRecord(receives=at) for at in range(120)}
    harness.log.write(many)
    assert harness.log.read(list(many)) == many
    harness.log.write({})
    assert harness.log.read([]) == {}


def test_a_note_is_gone_when_its_message_must_be(harness: Harness) -> None:
    harness.log.write({"a": RECORD})
    harness.clock.tick(14 * 86_400)
    assert harness.log.read(["a"]) == {"a": RECORD}
    harness.clock.tick(KEPT_S - 14 * 86_400 + 1)
    assert harness.log.read(["a"]) == {}


def test_out_of_reach_nothing_is_known_and_nothing_raises(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    harness.unavailable.write({"a": RECORD})
    assert harness.unavailable.read(["a"]) == {}
