"""Schedule: invokes a function at its times with EventBridge's event, without overlap.

EventBridge delivers at least once, at about the time. Each deviation that this allows can be injected: see
`FaultMode`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from local.template.spec import Invoker, InvokeResult, ScheduleSpec, Throttled

log = logging.getLogger(__name__)

MODES: Final = ("ok", "twice", "late", "missed")
_POLL_S: Final = 30.0
"""Polling interval of the wall clock: it may be set, and a sleeping laptop's timers stop."""


class Clock:
    """Wall clock, and waiting."""

    def now(self) -> datetime:
        """Return an aware time."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock."""
        await asyncio.sleep(seconds)


class Times(Protocol):
    """Due times of a schedule."""

    def after(self, at: datetime) -> datetime | None:
        """Return the first time later than `at`, or None when there is none."""
        ...


@dataclass(frozen=True, slots=True)
class Rate:
    """Fixed period in seconds, counted from `start`."""

    start: datetime
    every_s: float

    def after(self, at: datetime) -> datetime:
        """Return the first time later than `at`."""
        # Whole microseconds: with floating point, the time after a due time might be that time again.
        period = timedelta(seconds=self.every_s)
        return self.start + (max(timedelta(0), at - self.start) // period + 1) * period


@dataclass(slots=True)
class FaultMode:
    """Fault mode of a schedule: two concurrent invocations with one event, `delay` seconds late, or none.

    `times` counts firings down to "ok", None is unlimited.
    """

    mode: str = "ok"
    times: int | None = None
    delay: float = 30.0


class Schedule:
    """Fires at the times of its spec after `start`; a firing due while another is in flight is skipped."""

    def __init__(
        self,
        spec: ScheduleSpec,
        invoker: Invoker,
        *,
        region: str,
        account_id: str,
        clock: Clock | None = None,
    ) -> None:
        self.spec = spec
        self._invoker = invoker
        self._region = region
        self._account_id = account_id
        self._clock = clock or Clock()
        self._timer: asyncio.Task[None] | None = None
        self._firings: set[asyncio.Task[None]] = set()
        self._busy = asyncio.Lock()
        self._fault_mode = FaultMode()
        self._due: datetime | None = None
        self.enabled = spec.enabled
        self.fired = 0
        """Invocations so far."""
        self.failures = 0
        """Invocations that ended in an error or were throttled."""
        self.missed = 0
        """Firings that were skipped on purpose."""

    async def start(self) -> None:
        """Start; the first firing of a rate is one period later."""
        begin = self._clock.now()
        times: Times = self.spec.cron or Rate(begin, self.spec.every_s)
        self._timer = asyncio.create_task(self._run(times, begin), name=f"schedule-{self.spec.logical_id}")

    async def stop(self) -> None:
        """Stop; an invocation in flight is no longer awaited."""
        tasks = [task for task in (self._timer, *self._firings) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def set_fault_mode(self, fault: FaultMode) -> None:
        """Apply this mode from the next firing on. Raises ValueError for an invalid one."""
        if fault.mode not in MODES:
            raise ValueError(f"mode is one of {', '.join(MODES)}")
        if not (fault.times is None or isinstance(fault.times, int)) or not 0 <= float(fault.delay) <= 86400:
            raise ValueError("times is a number or null, delay 0 to 86400 seconds")
        self._fault_mode = fault

    def fire(self, at: datetime | None = None) -> asyncio.Task[None]:
        """Start a firing that is due `at` (default: now) in the current mode; the task ends with it.

        It waits for one that is in flight.
        """
        fault = self._next_fault_mode()
        firing = asyncio.create_task(self._fire(at or self._clock.now(), fault))
        self._firings.add(firing)
        firing.add_done_callback(self._firings.discard)
        return firing

    def stats(self) -> dict[str, Any]:
        """Return counters, and the next due time."""
        return {
            "fired": self.fired,
            "failures": self.failures,
            "missed": self.missed,
            "mode": self._fault_mode.mode,
            "next": _text(self._due) if self._due is not None and self.enabled else None,
        }

    async def _run(self, times: Times, begin: datetime) -> None:
        self._due = times.after(begin)
        while self._due is not None:
            while (left := (self._due - self._clock.now()).total_seconds()) > 0:
                await self._clock.sleep(min(left, _POLL_S))
            if self.enabled and not self._busy.locked():
                self.fire(self._due)
            # Times that passed meanwhile are skipped.
            self._due = times.after(max(self._due, self._clock.now()))
        log.warning("%s has no further due times", self.spec.logical_id)

    def _next_fault_mode(self) -> FaultMode:
        fault = self._fault_mode
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._fault_mode = FaultMode()
        return fault

    async def _fire(self, at: datetime, fault: FaultMode) -> None:
        if fault.mode == "missed":
            self.missed += 1
            return
        event = self._event(at)
        if fault.mode == "late":
            await self._clock.sleep(fault.delay)
        async with self._busy:
            await asyncio.gather(*(self._invoke(event) for _ in range(2 if fault.mode == "twice" else 1)))

    async def _invoke(self, event: bytes) -> None:
        self.fired += 1
        result: InvokeResult | None = None
        try:
            result = await self._invoker.invoke(self.spec.function, event)
        except (Throttled, KeyError) as error:
            log.warning("%s could not invoke %s: %r", self.spec.logical_id, self.spec.function, error)
        except Exception:  # any error of the host must not end the schedule
            log.exception("%s failed", self.spec.logical_id)
        self.failures += result is None or result.function_error is not None

    def _event(self, at: datetime) -> bytes:
        if self.spec.input is not None:
            return self.spec.input.encode()
        return json.dumps(scheduled_event(self.spec.logical_id, self._region, self._account_id, at)).encode()


def scheduled_event(rule: str, region: str, account_id: str, at: datetime) -> dict[str, Any]:
    """Return the event of the rule of this name due `at`, however late it is sent."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account_id,
        "time": _text(at),
        "region": region,
        "resources": [f"arn:aws:events:{region}:{account_id}:rule/{rule}"],
        "detail": {},
    }


def _text(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
