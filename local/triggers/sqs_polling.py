"""Polling intervals of an event source, and its concurrency limit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

Clock = Callable[[], float]
MAXIMUM: Final = 5
"""Concurrent invocations of a mapping that names no maximum; Lambda starts with as many."""


class Polling(Protocol):
    """Chooses the pause before the next receive, and how long that receive waits at the queue."""

    wait_s: int

    def received(self, count: int, limit: int) -> None:
        """Record that a receive for `limit` messages returned `count`."""

    def nudged(self) -> None:
        """Record that traffic is likely."""

    def pause_s(self, *, in_flight: bool) -> float:
        """Return seconds until the next receive should start, with or without invocations in flight."""


class LongPolling:
    """For a queue that answers waiting receives at once: always wait there, let batches fill when it is busy.

    While nothing is in flight, a message is received immediately. While an invocation is in flight, the
    receive after one that was not full waits until that invocation ends, `linger_s` at most: a batch costs
    nearly the same whatever its size.
    """

    wait_s = 20

    def __init__(self, linger_s: float = 0.05, clock: Clock = time.monotonic) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._next = -1e9

    def received(self, count: int, limit: int) -> None:
        """Record the result of a receive."""
        if count:
            now = self._clock()
            self._next = now + self._linger_s if count < limit else now

    def nudged(self) -> None:
        """Do nothing: a receive is waiting anyway."""

    def pause_s(self, *, in_flight: bool) -> float:
        """Return seconds until the next receive; zero or less is now."""
        return self._next - self._clock() if in_flight else 0.0


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

    def pause_s(self, *, in_flight: bool) -> float:  # noqa: ARG002 - of the protocol
        """Return seconds until the next receive; zero or less is now."""
        if self._full:
            return 0.0
        now = self._clock()
        busy = now - self._traffic < self._busy_for_s
        return self._asked + (self._busy_s if busy else self._idle_s) - now


class Concurrency:
    """Limit of invocations in flight: between 1 and the mapping's maximum, as on Lambda.

    It grows with the backlog while the machine has idle CPU: invocations that wait for others then leave room
    for more, those that compute do not.
    """

    _IDLE: Final = 0.2
    """Share of all cores that has to be idle for one more."""
    _SATURATED: Final = 0.05
    _LONG_S: Final = 2.0
    """Invocations of which none ends for so long wait for others, whatever else uses the CPU."""

    def __init__(
        self, maximum: int | None, idle: Callable[[], float | None] = lambda: 1.0, *, start: int = 1
    ) -> None:
        """Begin with `start`: one, so that batches fill.

        `idle` is the share of idle CPU lately, None when it was asked a moment ago.
        """
        self._idle = idle
        self._start = start
        self._waited_s = 0.0
        self.limit(maximum)

    def limit(self, maximum: int | None) -> None:
        """Start again with another maximum; None is the laptop's own."""
        self._maximum = maximum or MAXIMUM
        self._base = min(self._start, self._maximum)
        self.allowed = self._base

    def batch(self, count: int, limit: int) -> None:
        """Raise the limit after a full batch; lower it after an empty receive, or without idle CPU."""
        if count == 0:
            self._shrink()
        elif count >= limit and (idle := self._idle()) is not None:
            if idle >= self._IDLE:
                self._grow()
            elif idle < self._SATURATED:
                self._shrink()

    def waited(self, seconds: float) -> None:
        """Record that no invocation ended for so long, with as many in flight as are allowed."""
        self._waited_s += seconds
        idle = self._idle()
        if (idle is not None and idle >= self._IDLE) or self._waited_s >= self._LONG_S:
            self._grow()

    def succeeded(self) -> None:
        """Record a success: recover from earlier errors."""
        self._waited_s = 0.0
        if self.allowed < self._base:
            self.allowed += 1

    def failed(self) -> None:
        """Record a failed or throttled invocation: back off."""
        self.allowed = max(1, self.allowed // 2)

    def _grow(self) -> None:
        self._waited_s = 0.0
        self.allowed = min(self.allowed + 1, self._maximum)

    def _shrink(self) -> None:
        if self.allowed > self._base:
            self.allowed -= 1
