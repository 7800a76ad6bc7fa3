"""Schedules by calendar, on a clock that runs 600 times as fast: a minute takes a tenth of a second."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest

from local.template.cron import parse_cron
from local.template.spec import ScheduleSpec
from local.triggers.schedule import Clock, FaultMode, Schedule
from tests.integration.triggers.harness import ACCOUNT, REGION, Timer, until

SPEED = 600


class FastClock(Clock):
    """Starts at `start`; `jump` sets it forward, as waking up does to a laptop's."""

    def __init__(self, start: datetime) -> None:
        self._start = start
        self._began = time.monotonic()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=(time.monotonic() - self._began) * SPEED)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / SPEED)

    def jump(self, hours: float) -> None:
        self._start += timedelta(hours=hours)


def make(invoker: Timer, expression: str, clock: Clock) -> Schedule:
    spec = ScheduleSpec("Nightly", "Sweep", cron=parse_cron(expression))
    return Schedule(spec, invoker, region=REGION, account_id=ACCOUNT, clock=clock)


def sent(invoker: Timer) -> list[str]:
    return [json.loads(payload)["time"][11:] for payload in invoker.payloads]


async def test_it_fires_at_its_times_and_its_events_carry_them() -> None:
    invoker, clock = Timer(), FastClock(datetime(2027, 1, 1, 11, 57, 30, tzinfo=UTC))
    schedule = make(invoker, "0/2 * * * ? *", clock)
    await schedule.start()
    await until(lambda: len(invoker.payloads) == 3)
    await schedule.stop()
    assert sent(invoker) == ["11:58:00Z", "12:00:00Z", "12:02:00Z"]


async def test_after_a_sleep_it_fires_once_for_all_that_was_slept_through() -> None:
    invoker, clock = Timer(), FastClock(datetime(2027, 1, 1, 11, 57, 30, tzinfo=UTC))
    schedule = make(invoker, "0 * * * ? *", clock)
    await schedule.start()
    clock.jump(hours=5)
    await until(lambda: len(invoker.payloads) == 1)
    assert sent(invoker) == ["12:00:00Z"], "the time that it was due, not the one at which it woke up"
    assert schedule.stats()["next"] == "2027-01-01T17:00:00Z"
    await schedule.stop()


async def test_a_late_event_keeps_its_time_and_may_come_after_a_later_one() -> None:
    invoker, clock = Timer(), FastClock(datetime(2027, 1, 1, 11, 59, 0, tzinfo=UTC))
    schedule = make(invoker, "0/2 * * * ? *", clock)
    schedule.set_fault_mode(FaultMode("late", times=1, delay=180))
    await schedule.start()
    await until(lambda: len(invoker.payloads) == 2)
    await schedule.stop()
    assert sent(invoker) == ["12:02:00Z", "12:00:00Z"]


async def test_a_schedule_without_further_due_times_logs_it(caplog: pytest.LogCaptureFixture) -> None:
    schedule = make(Timer(), "0 12 1 1 ? 2026", FastClock(datetime(2027, 1, 1, tzinfo=UTC)))
    await schedule.start()
    await until(lambda: "Nightly has no further due times" in caplog.text)
    assert (schedule.fired, schedule.stats()["next"]) == (0, None)
    await schedule.stop()
