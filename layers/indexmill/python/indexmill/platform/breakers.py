"""Circuit breakers that all processes share: three failures, thirty seconds of peace, one probe.

The state is one record per breaker, changed by compare-and-set, so that one process alone gets to probe. A
process that knows the breaker as closed asks nobody: it reads when it begins and after a minute without work,
and learns of an open breaker from the answer to its own first failure. Without the store it counts alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol, TypeVar

from indexmill.contracts.errors import IndexmillError, TransientError
from indexmill.platform.time.clock import Clock

T = TypeVar("T")

EMBEDDING: Final = "embedding"
INDEX: Final = "index"
NAMES: Final = (EMBEDDING, INDEX)

FAILURES: Final = 3
OPEN_S: Final = 30.0
_PROBE_S: Final = 60.0
"""A probe that did not come back by then gives its turn away."""
_ASK_AGAIN_S: Final = 5.0
"""When another process probes, its answer is not known sooner."""
_STREAK_S: Final = 60.0
"""Failures further apart are no streak."""
_TRUSTED_S: Final = 60.0
_RACES: Final = 5
_LOG: Final = logging.getLogger(__name__)

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
        """Say what it is at `now`. Half open, it needs a probe: what was paused must go on then."""
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
    """Where the states are. Both calls raise StatesAway."""

    def read(self) -> Mapping[str, BreakerState]:
        """Return every breaker of NAMES; one that never failed is closed."""
        ...

    def replace(self, name: str, old: BreakerState, new: BreakerState) -> bool:
        """Write `new` if the state still is `old`, and say whether it was."""
        ...


class StatesAway(Exception):
    """The shared states cannot be reached."""


class BreakerOpen(TransientError):
    """Nothing was tried, or what was tried showed that nobody needs to try: work waits `wait_s` seconds."""

    def __init__(self, code: str, wait_s: float) -> None:
        """`code` is that of the errors which opened it."""
        super().__init__(code, "It is left in peace for a while after failures.", retry_after=int(wait_s + 1))
        self.wait_s = wait_s


class Breaker:
    """Guards the calls of one process to one dependency."""

    def __init__(
        self, name: str, code: str, outages: Collection[str], states: BreakerStates, clock: Clock
    ) -> None:
        """`code` is what a refused call raises; `outages` are the codes of errors that count as failures."""
        self._name = name
        self._code = code
        self._outages = frozenset(outages)
        self._states = states
        self._clock = clock
        self._known = BreakerState()
        self._known_at = float("-inf")

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` and return what it returns. Raises BreakerOpen, and what `work` raises."""
        self._admit()
        try:
            result = work()
        except IndexmillError as error:
            if error.code not in self._outages or not error.retryable:
                self._succeeded()  # it answered, only not what we wanted to hear
                raise
            self._change(lambda state, now: state.failed(now))
            now = self._now()
            if self._known.phase(now) == "open":
                wait = max(self._known.open_until - now, float(error.retry_after or 0))
                raise BreakerOpen(error.code, wait) from error
            raise
        self._succeeded()
        return result

    def _admit(self) -> None:
        """Let one call through, or raise BreakerOpen."""
        if self._clock.monotonic() - self._known_at > _TRUSTED_S:
            self._learn()
        now = self._now()
        phase = self._known.phase(now)
        if phase == "open":
            raise BreakerOpen(self._code, self._known.open_until - now)
        if phase == "half_open" and not self._change(lambda state, at: state.probed(at)):
            now = self._now()
            if self._known.phase(now) == "closed":
                return
            wait = max(self._known.open_until - now, _ASK_AGAIN_S)
            # Whether it is closed by then only the store knows.
            self._known_at = float("-inf")
            raise BreakerOpen(self._code, wait)

    def _succeeded(self) -> None:
        self._known_at = self._clock.monotonic()
        if self._known.failures:
            # Others may have seen it fail since our call began.
            self._change(lambda state, now: None if state.phase(now) == "open" else state.closed())

    def _change(self, step: Callable[[BreakerState, float], BreakerState | None]) -> bool:
        """Apply `step` to the shared state; False when it says that there is nothing to do."""
        try:
            for _ in range(_RACES):
                old = self._states.read()[self._name]
                new = step(old, self._now())
                if new is None or new is old:
                    self._remember(old)
                    return new is not None
                if self._states.replace(self._name, old, new):
                    self._tell(old, new)
                    self._remember(new)
                    return True
        except StatesAway:
            new = step(self._known, self._now())
            self._remember(new or self._known)
            return new is not None
        return False

    def _learn(self) -> None:
        try:
            self._remember(self._states.read()[self._name])
        except StatesAway:
            self._remember(self._known)

    def _remember(self, state: BreakerState) -> None:
        self._known, self._known_at = state, self._clock.monotonic()

    def _tell(self, old: BreakerState, new: BreakerState) -> None:
        if bool(old.opened_at) != bool(new.opened_at):
            _LOG.warning("breaker %s is %s", self._name, "open" if new.opened_at else "closed")

    def _now(self) -> float:
        return self._clock.now().timestamp()
