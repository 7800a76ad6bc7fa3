"""Fault modes of a schedule: twice, late, not at all; also over the control port."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
import pytest_asyncio

from local.metrics.telemetry import Telemetry
from local.stack.control import ControlApi
from local.stack.function_errors import FunctionErrors
from local.template.spec import ScheduleSpec
from local.triggers.schedule import FaultMode, Schedule
from tests.integration.triggers.harness import ACCOUNT, REGION, Timer, until


def make(invoker: Timer, every_s: float = 60.0) -> Schedule:
    spec = ScheduleSpec("EachMinute", "Sweep", every_s)
    return Schedule(spec, invoker, region=REGION, account_id=ACCOUNT)


async def test_a_duplicate_is_the_same_event_at_the_same_time() -> None:
    invoker = Timer(seconds=0.05)
    schedule = make(invoker)
    schedule.set_fault_mode(FaultMode("twice", times=1))
    await schedule.fire()
    assert (invoker.most_running, schedule.fired) == (2, 2)
    assert invoker.payloads[0] == invoker.payloads[1], "EventBridge's duplicates have one id"
    await schedule.fire()
    assert schedule.fired == 3, "once was asked for"


async def test_a_late_event_arrives_late_and_names_its_due_time() -> None:
    invoker = Timer()
    schedule = make(invoker)
    schedule.set_fault_mode(FaultMode("late", delay=0.3))
    began = time.monotonic()
    await schedule.fire(datetime(2027, 1, 1, 12, tzinfo=UTC))
    assert invoker.starts[0] - began >= 0.3
    assert json.loads(invoker.payloads[0])["time"] == "2027-01-01T12:00:00Z"


async def test_missed_firings_are_counted_and_end_with_the_fault_mode() -> None:
    invoker = Timer()
    schedule = make(invoker, 0.04)
    schedule.set_fault_mode(FaultMode("missed", times=3))
    await schedule.start()
    await until(lambda: invoker.starts)
    await schedule.stop()
    assert schedule.missed == 3
    assert schedule.stats()["mode"] == "ok"


async def test_a_late_event_is_forgotten_when_the_schedule_stops() -> None:
    invoker = Timer()
    schedule = make(invoker)
    schedule.set_fault_mode(FaultMode("late", delay=0.2))
    firing = schedule.fire()
    await asyncio.sleep(0)
    await schedule.stop()
    assert firing.cancelled()
    assert invoker.starts == []


@dataclass
class ControlPort:
    """A control port with one schedule."""

    http: httpx.AsyncClient
    invoker: Timer
    schedule: Schedule

    async def post(self, **body: Any) -> dict[str, Any]:
        answer = await self.http.post("/schedules/EachMinute", json=body)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


@pytest_asyncio.fixture
async def control() -> AsyncIterator[ControlPort]:
    invoker = Timer()
    control = ControlApi(dict, Telemetry(), FunctionErrors(print))
    schedule = make(invoker)
    control.schedules = {"EachMinute": schedule}
    base = await control.start()
    async with httpx.AsyncClient(base_url=base) as http:
        yield ControlPort(http, invoker, schedule)
    await schedule.stop()
    await control.stop()


async def test_a_schedule_is_fired_and_disturbed_from_outside(control: ControlPort) -> None:
    assert (await control.post(mode="twice", times=1))["mode"] == "twice"
    assert control.invoker.starts == [], "a fault mode alone fires nothing"
    await control.post(fire=True)
    await until(lambda: control.schedule.fired == 2)
    assert (await control.post())["mode"] == "ok"
    missed = await control.post(mode="missed", fire=True)
    assert missed["mode"] == "missed"
    await until(lambda: control.schedule.missed == 1)
    assert control.schedule.fired == 2


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"mode": "sulking"}, "mode is one of ok, twice, late, missed"),
        ({"mood": "ok"}, "unexpected keyword argument"),
        ({"mode": "late", "delay": -1}, "delay 0 to 86400"),
        ({"mode": "late", "times": "often"}, "times is a number"),
        ([], "fire"),
    ],
)
async def test_an_invalid_body_is_refused_and_changes_nothing(
    control: ControlPort, body: Any, expected: str
) -> None:
    answer = await control.http.post("/schedules/EachMinute", json=body)
    assert answer.status_code == 400
    assert expected in answer.json()["detail"]
    assert control.schedule.stats()["mode"] == "ok"
    assert control.invoker.starts == []


async def test_an_unknown_schedule_is_answered_with_the_known_ones(control: ControlPort) -> None:
    answer = await control.http.post("/schedules/Nightly", json={"fire": True})
    assert (answer.status_code, answer.json()) == (404, {"detail": "schedules are: EachMinute"})


async def test_a_form_of_a_web_page_fires_nothing(control: ControlPort) -> None:
    answer = await control.http.post("/schedules/EachMinute", content=b'{"fire": true}')
    assert answer.status_code == 415
    assert (await control.post())["fired"] == 0
