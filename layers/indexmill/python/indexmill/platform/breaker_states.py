"""Shared state of the circuit breakers: one record per breaker, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from indexmill.contracts.errors import TransientError

EMBEDDING: Final = "embedding"
INDEX: Final = "index"
NAMES: Final = (EMBEDDING, INDEX)

FAILURES: Final = 3
OPEN_S: Final = 30.0
_PROBE_S: Final = 60.0
"""A probe without an outcome by then expires: another process may probe."""
_STREAK_S: Final = 60.0
"""Failures further apart are not consecutive."""

Phase = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class BreakerState:
    """One breaker; times are Unix seconds, 0 = never."""

    failures: int = 0
    failed_at: float = 0.0
    opened_at: float = 0.0
    """Since when it is not closed; 0 = closed."""
    open_until: float = 0.0
    probe_until: float = 0.0
    version: int = 0
    """Raised by every change."""

    def phase(self, now: float) -> Phase:
        """Return the phase at `now`. Half-open, it needs a probe: a paused stage must resume then."""
        if not self.opened_at:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def failed(self, now: float) -> BreakerState:
        """Return the state after a failure at `now`."""
        streak = self.failures + 1 if now - self.failed_at <= _STREAK_S else 1
        if not self.opened_at and streak < FAILURES:
            return replace(self, failures=streak, failed_at=now, version=self.version + 1)
        if now < self.open_until:
            return self  # a call that was under way when it opened tells nothing new
        return BreakerState(streak, now, self.opened_at or now, now + OPEN_S, 0.0, self.version + 1)

    def probed(self, now: float) -> BreakerState | None:
        """Return the state in which the caller probes; None when it is not its turn."""
        if self.phase(now) != "half_open" or now < self.probe_until:
            return None
        return replace(self, probe_until=now + _PROBE_S, version=self.version + 1)

    def closed(self) -> BreakerState:
        """Return the state after a success."""
        return BreakerState(version=self.version + 1)


class BreakerStates(Protocol):
    """Store of the states. Both calls raise StatesUnavailable."""

    def read(self) -> Mapping[str, BreakerState]:
        """Return every breaker of NAMES; one that never failed is closed."""
        ...

    def replace(self, name: str, old: BreakerState, new: BreakerState) -> bool:
        """Write `new` if the state still is `old`, and return whether it was."""
        ...


class StatesUnavailable(Exception):
    """The shared states cannot be reached."""


class BreakerOpen(TransientError):
    """The breaker is open, or the failure of this call opened it: work waits `wait_s` seconds."""

    def __init__(self, code: str, wait_s: float) -> None:
        """`code` is that of the errors which opened it."""
        super().__init__(code, "It is left in peace for a while after failures.", retry_after=int(wait_s + 1))
        self.wait_s = wait_s
