"""Switches of the stages: on, unless an operator paused the stage or a breaker is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexmill.platform.breakers import OPEN_S, BreakerState
from tests.support.metrics import emitted
from tests.support.sweeper import SweeperHarness


def on(p: SweeperHarness) -> dict[str, bool]:
    p.tick()
    return {stage: switch.on for stage, switch in p.switches.items()}


def break_(p: SweeperHarness, name: str) -> None:
    now = p.clock.now().timestamp()
    state = BreakerState(failures=3, failed_at=now, opened_at=now, open_until=now + 3 * OPEN_S)
    before = p.breakers.read()[name]
    assert p.breakers.replace(name, before, replace(state, version=before.version + 1))


ALL = {"scraping": True, "chunking": True, "embedding": True}


def test_what_was_switched_off_by_hand_is_switched_on_again() -> None:
    p = SweeperHarness()
    p.switches["scraping"].on = False
    assert on(p) == ALL
    assert p.view.open_incidents["paused"] == {}


@pytest.mark.parametrize(
    ("paused", "expected"),
    [
        ("scraping", {**ALL, "scraping": False}),
        ("embedding", {**ALL, "embedding": False}),
        ("*", dict.fromkeys(ALL, False)),
        ("chunking", {**ALL, "chunking": False}),
    ],
)
def test_a_pause_switches_its_stage_off(paused: str, expected: dict[str, bool]) -> None:
    p = SweeperHarness()
    p.jobs.pauses[paused] = "a reason"
    assert on(p) == expected
    assert p.view.open_incidents["paused"] == {paused: {"reason": "a reason"}}
    p.jobs.pauses.clear()
    assert on(p) == ALL
    assert p.view.open_incidents["paused"] == {}


@pytest.mark.parametrize("name", ["embedding", "index"])
def test_an_open_breaker_switches_embedding_off_until_a_probe_is_due(name: str) -> None:
    p = SweeperHarness()
    break_(p, name)
    assert on(p) == {**ALL, "embedding": False}
    assert list(p.view.open_incidents["breaker_open"]) == [name]
    assert on(p) == ALL


@pytest.mark.parametrize("name", ["embedding", "index"])
def test_an_outage_ends_when_a_probe_succeeded_not_when_one_is_due(name: str) -> None:
    p = SweeperHarness()
    break_(p, name)
    p.tick()
    p.tick()
    assert list(p.view.open_incidents["breaker_open"]) == [name]
    state = p.breakers.read()[name]
    assert p.breakers.replace(name, state, state.closed(p.clock.now().timestamp()))
    p.tick()
    assert p.view.open_incidents["breaker_open"] == {}


def test_a_pause_outlasts_a_breaker() -> None:
    p = SweeperHarness()
    p.jobs.pauses["embedding"] = "maintenance"
    break_(p, "index")
    assert not on(p)["embedding"]
    assert not on(p)["embedding"]


def test_breakers_that_cannot_be_read_switch_no_stage_off() -> None:
    p = SweeperHarness()
    break_(p, "index")
    p.breakers.unavailable = True
    assert on(p) == ALL


def test_an_outage_does_not_end_because_the_breakers_cannot_be_read() -> None:
    p = SweeperHarness()
    break_(p, "index")
    p.tick()
    p.breakers.unavailable = True
    p.tick()
    assert list(p.view.open_incidents["breaker_open"]) == ["index"]


def test_one_switch_that_cannot_be_turned_leaves_the_other() -> None:
    p = SweeperHarness()
    p.jobs.pauses["*"] = "a reason"
    p.switches["scraping"].broken = True
    assert on(p) == {"scraping": True, "chunking": False, "embedding": False}


def test_each_switch_of_a_stage_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    p = SweeperHarness()
    p.jobs.pauses["scraping"] = "a reason"
    p.tick(2)
    assert emitted(capsys, "stage_switched_total") == [(1.0, {"stage": "scraping", "to": "off"})]
    p.jobs.pauses.clear()
    p.tick(2)
    assert emitted(capsys, "stage_switched_total") == [(1.0, {"stage": "scraping", "to": "on"})]


def switched(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    """Return what was counted since the last call, by stage and direction."""
    return [(of["stage"], of["to"]) for _, of in emitted(capsys, "stage_switched_total")]


def close(p: SweeperHarness, name: str) -> None:
    state = p.breakers.read()[name]
    assert p.breakers.replace(name, state, state.closed(p.clock.now().timestamp()))


def test_an_outage_is_counted_once_whatever_the_number_of_probes(capsys: pytest.CaptureFixture[str]) -> None:
    p = SweeperHarness()
    turns = []
    for _ in range(3):
        break_(p, "index")
        turns += [on(p)["embedding"], on(p)["embedding"]]
    assert turns == [False, True] * 3, "each probe is let through"
    assert switched(capsys) == [("embedding", "off")]
    close(p, "index")
    p.tick(2)
    assert switched(capsys) == [("embedding", "on")]


def test_interruptions_of_one_stage_that_overlap_are_counted_as_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    p = SweeperHarness()
    break_(p, "embedding")
    p.tick()
    assert switched(capsys) == [("embedding", "off")]
    break_(p, "index")
    p.jobs.pauses["*"] = "a reason"
    p.tick()
    assert switched(capsys) == [("scraping", "off"), ("chunking", "off")]
    p.jobs.pauses.clear()
    close(p, "embedding")
    p.tick()
    assert switched(capsys) == [("scraping", "on"), ("chunking", "on")]
    close(p, "index")
    p.tick()
    assert switched(capsys) == [("embedding", "on")]


def test_a_breaker_that_pauses_no_stage_is_not_counted(capsys: pytest.CaptureFixture[str]) -> None:
    p = SweeperHarness()
    break_(p, "embedding_query")
    p.tick()
    p.switches["scraping"].on = False
    p.tick()
    close(p, "embedding_query")
    p.tick()
    assert switched(capsys) == []
