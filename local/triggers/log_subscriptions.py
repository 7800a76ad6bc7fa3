"""Subscriptions of log groups: lines that match a filter invoke a function, with CloudWatch Logs' event."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
import uuid
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final, Protocol

from local.template.spec import Invoker, SubscriptionSpec, Throttled

log = logging.getLogger(__name__)

_COLLECT_S: Final = 0.05
_TRIES: Final = 3
_PAUSE_S: Final = 0.5
_STOP_S: Final = 2.0


class Line(Protocol):
    """A line of a function's log."""

    @property
    def at(self) -> str:
        """Its time, in ISO 8601."""
        ...

    @property
    def function(self) -> str:
        """The function's name."""
        ...

    @property
    def stream(self) -> str:
        """Its origin: stdout, stderr or platform."""
        ...

    @property
    def message(self) -> str:
        """Its text."""
        ...


class LogSubscriptions:
    """Delivers matching lines of one stack's functions; all methods belong to its event loop."""

    def __init__(self, specs: Iterable[SubscriptionSpec], invoker: Invoker, *, account_id: str) -> None:
        self._specs: dict[str, list[SubscriptionSpec]] = defaultdict(list)
        for spec in specs:
            self._specs[spec.source].append(spec)
        self._invoker = invoker
        self._account_id = account_id
        self._pending: dict[SubscriptionSpec, list[dict[str, Any]]] = {}
        self._deliveries: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def on_log(self, record: Line) -> None:
        """Keep the record for the functions that want it; quick, and never raises."""
        for spec in self._specs.get(record.function, ()):
            if record.stream != "platform" and matches(spec, record.message):
                self._pending.setdefault(spec, []).append(_event(record))
                if self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(_COLLECT_S, self._deliver)

    async def stop(self) -> None:
        """Deliver what there is, within seconds."""
        if self._timer is not None:
            self._timer.cancel()
            self._deliver()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=_STOP_S)
            for each in late:
                each.cancel()

    def _deliver(self) -> None:
        self._timer = None
        pending, self._pending = self._pending, {}
        for spec, events in pending.items():
            task = asyncio.get_running_loop().create_task(self._invoke(spec, self._payload(spec, events)))
            self._deliveries.add(task)
            task.add_done_callback(self._deliveries.discard)

    async def _invoke(self, spec: SubscriptionSpec, payload: bytes) -> None:
        """Invoke the function, again when it fails, as Lambda does with asynchronous events."""
        for left in reversed(range(_TRIES)):
            try:
                result = await self._invoker.invoke(spec.function, payload)
            except Throttled:
                pass
            else:
                if result.function_error is None:
                    return
            if left:
                await asyncio.sleep(_PAUSE_S)
        log.error("lines of %s were not delivered to %s", spec.source, spec.function)

    def _payload(self, spec: SubscriptionSpec, events: list[dict[str, Any]]) -> bytes:
        data = {
            "messageType": "DATA_MESSAGE",
            "owner": self._account_id,
            "logGroup": spec.group,
            "logStream": spec.source,
            "subscriptionFilters": [spec.logical_id],
            "logEvents": events,
        }
        packed = base64.b64encode(gzip.compress(json.dumps(data).encode(), compresslevel=1)).decode()
        return json.dumps({"awslogs": {"data": packed}}).encode()


def matches(spec: SubscriptionSpec, message: str) -> bool:
    """Return whether the line is a JSON object with the field that the filter asks for."""
    if f'"{spec.value}"' not in message:
        return False
    try:
        found = json.loads(message)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get(spec.field) == spec.value


def _event(record: Line) -> dict[str, Any]:
    at = int(datetime.fromisoformat(record.at).timestamp() * 1000)
    return {"id": uuid.uuid4().hex, "timestamp": at, "message": record.message}
