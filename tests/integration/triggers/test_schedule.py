"""Schedules by rate, and the events of all schedules."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

from local.template.spec import ScheduleSpec, Throttled
from local.triggers.schedule import Rate, Schedule
from tests.integration.triggers.harness import ACCOUNT, REGION, Timer, until

NOON = datetime(2026, 11, 20, 12, 0, 1, 999, tzinfo=UTC)


def _schedule(invoker: Timer, every_s: float, **spec: object) -> Schedule:
    made = ScheduleSpec("EachMinute", "Sweep", every_s, **spec)  # type: ignore[arg-type]
    return Schedule(made, invoker, region=REGION, account_id=ACCOUNT)


async def test_it_fires_at_its_rate_and_first_after_one_period() -> None:
    invoker = Timer()
    schedule = _schedule(invoker, 0.1)
    start = time.monotonic()
    await schedule.start()
    await until(lambda: len(invoker.starts) == 4)
    await schedule.stop()
    assert 0.09 < invoker.starts[0] - start < 0.2
    assert 0.38 < invoker.starts[3] - start < 0.6
    fired = schedule.fired
    await asyncio.sleep(0.15)
    assert len(invoker.starts) == fired


@pytest.mark.parametrize("every_s", [0.1, 0.3, 60, 3600])
def test_after_a_due_time_comes_the_next_one(every_s: float) -> None:
    rate, due = Rate(NOON, every_s), NOON
    for count in range(1, 50):
        due = rate.after(due)
        assert due == NOON + count * timedelta(seconds=every_s)
    assert rate.after(NOON - timedelta(hours=1)) == NOON + timedelta(seconds=every_s), (
        "a clock that was set back"
    )


async def test_the_event_is_eventbridges() -> None:
    invoker = Timer()
    await _schedule(invoker, 60).fire(NOON)
    event = json.loads(invoker.payloads[0])
    assert uuid.UUID(event.pop("id"))
    assert event == {
        "version": "0",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": ACCOUNT,
        "time": "2026-11-20T12:00:01Z",
        "region": REGION,
        "resources": [f"arn:aws:events:{REGION}:{ACCOUNT}:rule/EachMinute"],
        "detail": {},
    }


async def test_a_fixed_input_is_sent_instead() -> None:
    invoker = Timer()
    await _schedule(invoker, 60, input='{"task":"sweep"}').fire()
    assert invoker.payloads == [b'{"task":"sweep"}']


async def test_a_long_invocation_is_not_piled_up_on() -> None:
    invoker = Timer(seconds=0.25)
    schedule = _schedule(invoker, 0.05)
    await schedule.start()
    await until(lambda: len(invoker.starts) == 3)
    await schedule.stop()
    gaps = [b - a for a, b in zip(invoker.starts, invoker.starts[1:], strict=False)]
    assert invoker.most_running == 1
    assert min(gaps) >= 0.25


async def test_missed_periods_are_not_made_up_for() -> None:
    invoker = Timer(seconds=0.5)
    schedule = _schedule(invoker, 0.1)
    await schedule.start()
    await until(lambda: invoker.running)
    invoker.seconds = 0.0
    await asyncio.sleep(0.65)
    await schedule.stop()
    assert len(invoker.starts) in (2, 3)  # the long one, then one or two at their time; not five at once


async def test_firing_now_waits_for_the_firing_under_way() -> None:
    invoker = Timer(seconds=0.05)
    schedule = _schedule(invoker, 60)
    await asyncio.gather(schedule.fire(), schedule.fire())
    assert (invoker.most_running, schedule.fired) == (1, 2)


async def test_errors_do_not_end_it() -> None:
    for error in (Throttled(), KeyError("Sweep"), RuntimeError("host")):
        invoker = Timer(error=error)
        schedule = _schedule(invoker, 0.03)
        await schedule.start()
        await until(lambda invoker=invoker: len(invoker.starts) >= 3)  # type: ignore[misc]
        await schedule.stop()


async def test_a_disabled_schedule_does_not_fire_until_enabled() -> None:
    invoker = Timer()
    schedule = _schedule(invoker, 0.03, enabled=False)
    await schedule.start()
    await asyncio.sleep(0.12)
    assert invoker.starts == []
    schedule.enabled = True
    await until(lambda: invoker.starts)
    await schedule.stop()
