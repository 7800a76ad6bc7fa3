"""A schedule by rate: invokes a function every so often with EventBridge's event, never twice at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from local.spec import Invoker, InvokeResult, ScheduleSpec, Throttled

log = logging.getLogger(__name__)


def _now() -> datetime:
    return datetime.now(UTC)


class Schedule:
    """Fires `spec.every_s` after `start` and then at that rate; a firing that would overlap is left out.

    `now` gives the `time` of the events.
    """

    def __init__(
        self,
        spec: ScheduleSpec,
        invoker: Invoker,
        *,
        region: str,
        account_id: str,
        now: Callable[[], datetime] = _now,
    ) -> None:
        self.spec = spec
        self._invoker = invoker
        self._region = region
        self._account_id = account_id
        self._now = now
        self._task: asyncio.Task[None] | None = None
        self._busy = asyncio.Lock()
        self.enabled = spec.enabled
        self.fired = 0
        """Invocations so far."""
        self.failures = 0
        """Invocations that ended in an error or were throttled."""

    async def start(self) -> None:
        """Begin to count; the first firing is one period away."""
        self._task = asyncio.create_task(self._run(), name=f"schedule-{self.spec.logical_id}")

    async def stop(self) -> None:
        """Stop; an invocation under way is no longer waited for."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def fire_now(self) -> InvokeResult | None:
        """Fire outside the rate, after a firing under way; None when the function is throttled or unknown."""
        async with self._busy:
            self.fired += 1
            try:
                result = await self._invoker.invoke(self.spec.function, self._event())
            except (Throttled, KeyError) as error:
                self.failures += 1
                log.warning("%s could not invoke %s: %r", self.spec.logical_id, self.spec.function, error)
                return None
            self.failures += result.function_error is not None
            return result

    def _event(self) -> bytes:
        if self.spec.input is not None:
            return self.spec.input.encode()
        event = scheduled_event(self.spec.logical_id, self._region, self._account_id, self._now())
        return json.dumps(event).encode()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + self.spec.every_s
        while True:
            await asyncio.sleep(due - loop.time())
            if self.enabled and not self._busy.locked():
                try:
                    await self.fire_now()
                except Exception:  # whatever a host may raise must not end the schedule
                    log.exception("%s failed", self.spec.logical_id)
            # Periods that passed during a long invocation are skipped, not caught up with.
            missed = max(0.0, loop.time() - due) // self.spec.every_s
            due += (1 + missed) * self.spec.every_s


def scheduled_event(rule: str, region: str, account_id: str, at: datetime) -> dict[str, Any]:
    """What EventBridge sends when the rule of this name fires."""
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": account_id,
        "time": at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [f"arn:aws:events:{region}:{account_id}:rule/{rule}"],
        "detail": {},
    }
