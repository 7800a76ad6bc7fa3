"""Time: the clock port, deadlines of requests, and the retry policy of stages."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol, Self, TypeVar

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.pipeline import Stage

T = TypeVar("T")


class Clock(Protocol):
    """Time as the code may see it."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for measuring."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds that never run backwards, for measuring."""
        return time.monotonic()

    def pause(self, longest_s: float) -> None:
        """Wait a random part of so many seconds, so that processes do not try again at the same time."""
        time.sleep(random.random() * longest_s)  # noqa: S311 - no secret; between tries of one call


class Deadline:
    """End of a request's time, as its work sees it in any thread: what it holds is taken away then."""

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


DEADLINE: ContextVar[Deadline | None] = ContextVar("deadline", default=None)
"""Of the request that the running code works for, if it has one."""


def request_limit(service_limit_s: float, integration_timeout_s: float) -> float:
    """Return the seconds a synchronous request may take: its own limit, and always before the gateway's."""
    return min(service_limit_s, integration_timeout_s - 1)


async def within(seconds: float, work: Awaitable[T], *, message: str, hint: str) -> T:
    """Return what `work` returns, or raise TransientError(deadline_exceeded) (HTTP 504) after `seconds`.

    The work may still be running then, in a thread: its database connection is dropped, so that the next
    request does not join its transaction. `hint` names the endpoint that does it without a limit.
    """
    # Most functions need no event loop, and it takes 40 ms to import.
    import asyncio

    with limited(seconds, message=message, hint=hint) as deadline:
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError as error:
            deadline.end()
            raise deadline.exceeded() from error


@contextmanager
def limited(seconds: float, *, message: str, hint: str) -> Iterator[Deadline]:
    """Let what waits for the database inside raise TransientError(deadline_exceeded) after `seconds`."""
    deadline = Deadline(seconds, message, hint)
    token = DEADLINE.set(deadline)
    try:
        yield deadline
    finally:
        DEADLINE.reset(token)


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """One first try plus `max_retries` more, spaced by exponential back-off with full jitter."""

    max_retries: int
    base_s: float = 1.0
    max_backoff_s: float = 300.0

    @classmethod
    def of(cls, stage: Stage) -> Self:
        """Return the policy of a stage's row."""
        return cls(stage.max_retries, max_backoff_s=stage.max_backoff_s)

    @property
    def max_tries(self) -> int:
        """Tries in all."""
        return self.max_retries + 1

    def delay(self, tries: int, *, retry_after: int | None = None, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after try number `tries` (from 1) failed.

        `retry_after` is what the other side asked for; it is honoured as the least wait.
        """
        ceiling = min(self.max_backoff_s, self.base_s * 2 ** (tries - 1))
        # Spreads retries; nothing secret depends on it.
        jittered = (rng or random).uniform(0, ceiling)
        return max(jittered, float(retry_after or 0))
