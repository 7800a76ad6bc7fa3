"""Time limit of a synchronous request, shorter than the gateway's."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from indexmill.contracts.errors import ErrorCode, TransientError

T = TypeVar("T")


class Request:
    """A request with a limit, as its work sees it in any thread: what it holds is taken away at the end."""

    def __init__(self, limit_s: float, message: str, hint: str) -> None:
        """`message` and `hint` are the answer to a caller whose request takes longer."""
        self._ends = time.monotonic() + limit_s
        self._message, self._hint = message, hint
        self._over = False
        self._held: dict[int, Callable[[], None]] = {}
        self._lock = threading.Lock()

    def left(self) -> float:
        """Return the seconds that are left, 0 at the end."""
        return max(0.0, self._ends - time.monotonic())

    def exceeded(self) -> TransientError:
        """Return the answer to a caller who would have to wait longer (HTTP 504)."""
        return TransientError(ErrorCode.DEADLINE_EXCEEDED, self._message, hint=self._hint)

    def hold(self, what: object, take_away: Callable[[], None]) -> None:
        """Note that the work uses `what`; raises TransientError(deadline_exceeded) when it is too late."""
        with self._lock:
            if self._over:
                raise TransientError(ErrorCode.DEADLINE_EXCEEDED, "The request was answered meanwhile.")
            self._held[id(what)] = take_away

    def end(self) -> None:
        """Take away what the work holds: it continues in its thread and can use nothing of it."""
        with self._lock:
            self._over = True
        for take_away in self._held.values():
            take_away()


REQUEST: ContextVar[Request | None] = ContextVar("request", default=None)
"""The request that the running code works for, if it has a limit."""


def request_limit(service_limit_s: float, integration_timeout_s: float) -> float:
    """Return the seconds a synchronous request may take: its own limit, and always before the gateway's."""
    return min(service_limit_s, integration_timeout_s - 1)


async def within(seconds: float, work: Awaitable[T], *, message: str, hint: str) -> T:
    """Return what `work` returns, or raise TransientError(deadline_exceeded) (HTTP 504) after `seconds`.

    The work may still be running then, in a thread: its database connection is dropped, so that the next
    request does not join its transaction. `hint` names the endpoint that does it without a limit.
    """
    with limited(seconds, message=message, hint=hint) as request:
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError as error:
            request.end()
            raise request.exceeded() from error


@contextmanager
def limited(seconds: float, *, message: str, hint: str) -> Iterator[Request]:
    """Let what waits for the database inside raise TransientError(deadline_exceeded) after `seconds`."""
    request = Request(seconds, message, hint)
    token = REQUEST.set(request)
    try:
        yield request
    finally:
        REQUEST.reset(token)
