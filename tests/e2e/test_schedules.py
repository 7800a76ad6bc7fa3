"""A running stack's schedule, disturbed from outside as EventBridge might, and the ages of its queues."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.support.stack import RunningStack, eventually

pytestmark = pytest.mark.e2e
SWEEPER = "OrchestratorSweeperEveryMinute"


def schedule(stack: RunningStack) -> dict[str, Any]:
    found: dict[str, Any] = stack.status()["schedules"][SWEEPER]
    return found


@pytest.mark.fault("F63")
def test_two_concurrent_sweeps_both_succeed(stack: RunningStack) -> None:
    before = schedule(stack)
    assert before["next"].endswith("Z")
    stack.disturb(SWEEPER, mode="twice", times=1, fire=True)
    eventually(lambda: schedule(stack)["fired"] >= before["fired"] + 2, "both invocations")
    eventually(lambda: not stack.status()["functions"]["OrchestratorSweeper"]["busy"], "their end")
    after = schedule(stack)
    assert (after["failures"], after["mode"]) == (before["failures"], "ok")


@pytest.mark.fault("F63")
def test_a_missed_sweep_is_counted_and_the_next_one_runs(stack: RunningStack) -> None:
    before = schedule(stack)
    stack.disturb(SWEEPER, mode="missed", times=1, fire=True)
    eventually(lambda: schedule(stack)["missed"] == before["missed"] + 1, "the missed one")
    stack.disturb(SWEEPER, fire=True)
    eventually(lambda: schedule(stack)["fired"] > before["fired"], "the next one")


def test_the_age_of_each_queue_is_reported(stack: RunningStack) -> None:
    queues = stack.status()["queues"]
    assert {"ScrapeQueue", "ScrapeDlq"} <= set(queues)
    assert [name for name, each in queues.items() if each["oldest_s"] is None] == []
    text = httpx.get(f"{stack.control}/metrics", timeout=10.0).text
    for name in queues:
        assert f'sqs_oldest_message_age_seconds{{queue="{name}"}} ' in text
