"""A clock that moves only when it is advanced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FrozenClock:
    """Starts at a fixed moment; `tick` moves both kinds of time."""

    def __init__(self) -> None:
        """The moment is arbitrary but the same in every test."""
        self._now = datetime(2026, 3, 14, 10, 22, tzinfo=UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """Return the wall-clock time."""
        return self._now

    def monotonic(self) -> float:
        """Return the measuring time, in seconds."""
        return self._monotonic

    def tick(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
