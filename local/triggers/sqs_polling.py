"""Polling intervals of an event source, and its concurrency limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

Clock = Callable[[], float]
START_CONCURRENCY = 5
"""Lambda's initial number of concurrent invocations, and the default limit on the laptop."""


class Polling(Protocol):
    """Chooses the pause before the next receive, and how long that receive waits at the queue."""

    wait_s: int

    def received(self, count: int, limit: int) -> None:
        """Record that a receive for `limit` messages returned `count`."""

    def nudged(self) -> None:
        """Record that traffic is likely."""

    def pause_s(self) -> float:
        """Return seconds until the next receive should start."""


class LongPolling:
    """For a queue that answers waiting receives at once: always wait there, let batches fill when it is busy.

    A message after an idle time is received immediately. When receives follow each other closely and return
    few messages, they are kept `linger_s` apart: a batch costs nearly the same whatever its size.
    """

    wait_s = 20

    def __init__(self, linger_s: float = 0.015, clock: Clock = time.monotonic) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._last = -1e9
        self._next = -1e9

    def received(self, count: int, limit: int) -> None:
        """Record the result of a receive."""
        now = self._clock()
        if count:
            busy = now - self._last < 2 * self._linger_s
            self._next = now + self._linger_s if busy and count < limit else now
            self._last = now

    def nudged(self) -> None:
        """Do nothing: a receive is waiting anyway."""

    def pause_s(self) -> float:
        """Return seconds until the next receive; zero or less is now."""
        return self._next - self._clock()


class ShortPolling:
    """For a queue whose waiting receives notice a message late: poll often while busy, seldom when idle."""

    wait_s = 0

    def __init__(
        self,
        busy_s: float = 0.012,
        idle_s: float = 0.1,
        busy_for_s: float = 2.0,
        clock: Clock = time.monotonic,
    ) -> None:
        self._busy_s = busy_s
        self._idle_s = idle_s
        self._busy_for_s = busy_for_s
        self._clock = clock
        self._traffic = -1e9
        self._asked = -1e9
        self._full = False

    def received(self, count: int, limit: int) -> None:
        """Record the result of a receive."""
        self._asked = self._clock()
        self._full = count >= limit
        if count:
            self._traffic = self._asked

    def nudged(self) -> None:
        """Poll often for a while."""
        self._traffic = self._clock()

    def pause_s(self) -> float:
        """Return seconds until the next receive; zero or less is now."""
        if self._full:
            return 0.0
        now = self._clock()
        busy = now - self._traffic < self._busy_for_s
        return self._asked + (self._busy_s if busy else self._idle_s) - now


class Concurrency:
    """Limit of invocations in flight: between 1 and the mapping's maximum, as on Lambda."""

    def __init__(self, maximum: int | None) -> None:
        self.limit(maximum)

    def limit(self, maximum: int | None) -> None:
        """Start again with another maximum; None is the laptop's own."""
        self._maximum = maximum or START_CONCURRENCY
        self._base = min(START_CONCURRENCY, self._maximum)
        self.allowed = self._base

    def batch(self, count: int, limit: int) -> None:
        """Raise the limit after a full batch; lower it after an empty receive."""
        if count >= limit:
            self.allowed = min(self.allowed + 1, self._maximum)
        elif count == 0 and self.allowed > self._base:
            self.allowed -= 1

    def succeeded(self) -> None:
        """Record a success: recover from earlier errors."""
        if self.allowed < self._base:
            self.allowed += 1

    def failed(self) -> None:
        """Record a failed or throttled invocation: back off."""
        self.allowed = max(1, self.allowed // 2)
