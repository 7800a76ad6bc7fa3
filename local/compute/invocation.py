"""Invocation in the host."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import dataclass, field

from local.template.spec import InvokeResult

TAIL_BYTES = 4096


class LogTail:
    """Last 4 KB of an invocation's log, for `LogType: Tail`."""

    __slots__ = ("_data",)

    def __init__(self) -> None:
        self._data = bytearray()

    def add(self, line: str) -> None:
        """Append one line."""
        self._data += line.encode("utf-8", "replace") + b"\n"
        if len(self._data) > 4 * TAIL_BYTES:
            del self._data[:-TAIL_BYTES]

    def value(self) -> bytes:
        """Return the tail, at most 4096 bytes."""
        return bytes(self._data[-TAIL_BYTES:])


@dataclass(slots=True, eq=False)
class Invocation:
    """Request, state and the future of the result."""

    payload: bytes
    result: asyncio.Future[InvokeResult]
    tail: LogTail | None = None
    trace_id: str | None = None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    submitted_at: float = field(default_factory=time.monotonic)
    sent_at: float = 0.0
    """Monotonic time at which the runtime took it; 0 while it waits."""

    def trace_header(self) -> str:
        """Return the caller's trace header, or a new one that is not sampled."""
        digits = self.request_id.replace("-", "")
        return self.trace_id or f"Root=1-{digits[:8]}-{digits[8:]};Parent={digits[:16]};Sampled=0"

    def duration_ms(self) -> float:
        """Return milliseconds since the runtime took it."""
        return (time.monotonic() - self.sent_at) * 1e3 if self.sent_at else 0.0

    def resolve(self, payload: bytes, function_error: str | None, *, import_failed: bool = False) -> None:
        """Set the result."""
        if not self.result.done():
            took_ms = self.duration_ms()
            self.result.set_result(
                InvokeResult(payload, function_error, self.request_id, took_ms, import_failed)
            )

    def fail(self, error: Exception) -> None:
        """Set `error` as the outcome."""
        if not self.result.done():
            self.result.set_exception(error)
