"""One suite for release notes: the twin remembers and forgets as DynamoDB does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from indexmill.platform.aws.dynamodb_delivery_log import DynamoDbReleases
from indexmill.platform.consumer.delivery_log import KEPT_S, ReleaseNote, ReleaseNotes
from indexmill.testing.clock import FrozenClock
from indexmill.testing.releases import InMemoryReleases
from local.backends.ministack import MiniStack
from tests.support.state_table import away, dynamodb, new_table

NOTE = ReleaseNote(released=3, tries=2, crashes=1, begun=True, last_error="http_503")


@dataclass
class Harness:
    notes: ReleaseNotes
    clock: FrozenClock
    away: ReleaseNotes
    """The same kind, out of reach."""


@pytest.fixture(params=["twin", "dynamodb"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    clock = FrozenClock()
    if request.param == "twin":
        unreachable = InMemoryReleases(clock)
        unreachable.away = True
        yield Harness(InMemoryReleases(clock), clock, unreachable)
        return
    server: MiniStack = request.getfixturevalue("ministack")
    client = dynamodb(server)
    made = DynamoDbReleases(new_table(client), clock, client)
    yield Harness(made, clock, DynamoDbReleases("none", clock, away()))


def test_a_note_is_read_as_it_was_written(harness: Harness) -> None:
    assert harness.notes.read(["a"]) == {}
    plain = ReleaseNote()
    harness.notes.write({"a": NOTE, "b": plain})
    assert harness.notes.read(["a", "b", "c", "a"]) == {"a": NOTE, "b": plain}


def test_a_later_note_replaces_an_earlier_one(harness: Harness) -> None:
    harness.notes.write({"a": NOTE})
    harness.notes.write({"a": ReleaseNote(released=4)})
    assert harness.notes.read(["a"]) == {"a": ReleaseNote(released=4)}


def test_more_notes_than_one_call_takes(harness: Harness) -> None:
    many = {f"m{at}": ReleaseNote(released=at) for at in range(120)}
    harness.notes.write(many)
    assert harness.notes.read(list(many)) == many
    harness.notes.write({})
    assert harness.notes.read([]) == {}


def test_a_note_is_gone_when_its_message_must_be(harness: Harness) -> None:
    harness.notes.write({"a": NOTE})
    harness.clock.tick(14 * 86_400)
    assert harness.notes.read(["a"]) == {"a": NOTE}
    harness.clock.tick(KEPT_S - 14 * 86_400 + 1)
    assert harness.notes.read(["a"]) == {}


def test_out_of_reach_nothing_is_known_and_nothing_raises(
    harness: Harness, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    harness.away.write({"a": NOTE})
    assert harness.away.read(["a"]) == {}
