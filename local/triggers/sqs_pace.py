"""When an event source asks its queue again, and how many invocations it may have under way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

Clock = Callable[[], float]
START_CONCURRENCY = 5
"""Invocations under way that Lambda begins with, and the most by default on the laptop."""


class Pace(Protocol):
    """Decides the pause before the next receive, and how long that receive waits at the queue."""

    wait_s: int

    def received(self, count: int, limit: int) -> None:
        """Note that a receive for `limit` messages has brought `count`."""

    def nudged(self) -> None:
        """Note that traffic is likely."""

    def pause_s(self) -> float:
        """Seconds until the next receive should start."""


class LongPollPace:
    """For a queue that answers waiting receives at once: always wait there, let batches fill when it is busy.

    A message after a quiet moment is taken immediately. When receives follow each other closely and come back
    with few messages, they are kept `linger_s` apart: a batch costs nearly the same whatever its size.
    """

    wait_s = 20

    def __init__(self, linger_s: float = 0.015, clock: Clock = time.monotonic) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._last = -1e9
        self._next = -1e9

    def received(self, count: int, limit: int) -> None:
        """Note what a receive has brought."""
        now = self._clock()
        if count:
            busy = now - self._last < 2 * self._linger_s
            self._next = now + self._linger_s if busy and count < limit else now
            self._last = now

    def nudged(self) -> None:
        """Nothing to do: a receive is waiting anyway."""

    def pause_s(self) -> float:
        """Seconds until the next receive; zero or less is now."""
        return self._next - self._clock()


class ShortPollPace:
    """For a queue whose waiting receives notice a message late: ask often while busy, seldom when idle."""

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
        """Note what a receive has brought."""
        self._asked = self._clock()
        self._full = count >= limit
        if count:
            self._traffic = self._asked

    def nudged(self) -> None:
        """Be busy for a while."""
        self._traffic = self._clock()

    def pause_s(self) -> float:
        """Seconds until the next receive; zero or less is now."""
        if self._full:
            return 0.0
        now = self._clock()
        busy = now - self._traffic < self._busy_for_s
        return self._asked + (self._busy_s if busy else self._idle_s) - now


class Concurrency:
    """Invocations that may be under way at once: between 1 and the mapping's maximum, as on Lambda."""

    def __init__(self, maximum: int | None) -> None:
        self.limit(maximum)

    def limit(self, maximum: int | None) -> None:
        """Begin anew with another maximum; None is the laptop's own."""
        self._maximum = maximum or START_CONCURRENCY
        self._base = min(START_CONCURRENCY, self._maximum)
        self.allowed = self._base

    def batch(self, count: int, limit: int) -> None:
        """A full batch asks for more; an empty receive gives back what was gained."""
        if count >= limit:
            self.allowed = min(self.allowed + 1, self._maximum)
        elif count == 0 and self.allowed > self._base:
            self.allowed -= 1

    def succeeded(self) -> None:
        """An invocation went well: recover what errors took."""
        if self.allowed < self._base:
            self.allowed += 1

    def failed(self) -> None:
        """An invocation failed or was throttled: back off."""
        self.allowed = max(1, self.allowed // 2)
