"""Breaker states in memory."""

from __future__ import annotations

from collections.abc import Mapping

from indexmill.platform.breakers import NAMES, BreakerState, StatesUnavailable


class InMemoryBreakers:
    """A dictionary; `unavailable` makes it unreachable. `reads` and `writes` count calls."""

    def __init__(self) -> None:
        """All closed."""
        self._states = dict.fromkeys(NAMES, BreakerState())
        self.unavailable = False
        self.reads = 0
        self.writes = 0

    def read(self) -> Mapping[str, BreakerState]:
        """Return every breaker."""
        self.reads += 1
        if self.unavailable:
            raise StatesUnavailable
        return dict(self._states)

    def replace(self, name: str, old: BreakerState, new: BreakerState) -> bool:
        """Write `new` if the state still is `old`."""
        self.writes += 1
        if self.unavailable:
            raise StatesUnavailable
        if self._states[name].version != old.version:
            return False
        self._states[name] = new
        return True
