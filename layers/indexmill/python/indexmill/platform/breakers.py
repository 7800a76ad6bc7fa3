"""Circuit breakers that all processes share.

Each opens after 3 consecutive failures for 30 s, then admits one half-open probe. A closed breaker costs a
process no request: it reads the state at its first call and after a minute without one, and sees that others
opened it when a call of its own fails. While the state store is unavailable, each process counts alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, TypeVar

import pybreaker

from indexmill.contracts.errors import IndexmillError
from indexmill.platform.breaker_states import (
    FAILURES,
    BreakerOpen,
    BreakerState,
    BreakerStates,
    StatesUnavailable,
)
from indexmill.platform.time.clock import Clock

T = TypeVar("T")

_ASK_AGAIN_S: Final = 5.0
"""Wait of a call that is refused while another process probes."""
_TRUSTED_S: Final = 60.0
_RACES: Final = 5
_LOG: Final = logging.getLogger(__name__)


class Breaker:
    """pybreaker's circuit breaker for one dependency, with a state that all processes share."""

    def __init__(
        self, name: str, code: str, outages: Collection[str], states: BreakerStates, clock: Clock
    ) -> None:
        """`code` is what a refused call raises; `outages` are the codes of errors that count as failures."""
        self._code = code
        self._outages = frozenset(outages)
        self._storage = SharedStorage(name, states, clock)
        self._breaker = pybreaker.CircuitBreaker(
            fail_max=FAILURES,
            reset_timeout=0,  # the storage decides by the shared record when a probe is due
            exclude=[self._is_answer],
            listeners=[self._storage],
            state_storage=self._storage,
            throw_new_error_on_trip=False,
        )

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` and return what it returns. Raises BreakerOpen, and what `work` raises."""
        self._storage.refresh()
        try:
            return self._breaker.call(work)
        except pybreaker.CircuitBreakerError as error:
            raise BreakerOpen(self._code, self._storage.wait_s()) from error
        except IndexmillError as error:
            if self._is_answer(error) or self._storage.state != pybreaker.STATE_OPEN:
                raise
            raise BreakerOpen(error.code, max(self._storage.wait_s(), error.retry_after or 0)) from error

    def _is_answer(self, error: BaseException) -> bool:
        """Return whether the dependency answered; a defect of this code is raised, as no evidence."""
        if not isinstance(error, IndexmillError):
            raise error
        return error.code not in self._outages or not error.retryable


class SharedStorage(pybreaker.CircuitMemoryStorage, pybreaker.CircuitBreakerListener):
    """pybreaker's storage over one shared record, which is changed by compare-and-set alone.

    Between two calls this process trusts what it knows. When the record cannot be read or written, it counts
    alone.
    """

    def __init__(self, name: str, states: BreakerStates, clock: Clock) -> None:
        """Read nothing yet."""
        super().__init__(pybreaker.STATE_CLOSED)
        self._record = name
        self._states = states
        self._clock = clock
        self._known = BreakerState()
        self._known_at = float("-inf")
        self._is_probing = False

    def refresh(self) -> None:
        """Read the record, unless what is known is from the last minute."""
        if self._clock.monotonic() - self._known_at > _TRUSTED_S:
            self._change(lambda _state, _now: None)

    def wait_s(self) -> float:
        """Return the seconds that a refused call waits."""
        now = self._now()
        if self._known.phase(now) == "half_open":
            return _ASK_AGAIN_S
        return self._known.open_until - now

    @property
    def state(self) -> str:
        """Return "half-open" to the process that probes only: to the others the breaker is still open."""
        phase = self._known.phase(self._now())
        if phase == "half_open":
            return pybreaker.STATE_HALF_OPEN if self._is_probing else pybreaker.STATE_OPEN
        return phase

    @state.setter
    def state(self, state: str) -> None:
        """Admit the probe by one conditional write; raise CircuitBreakerError for all other calls.

        pybreaker sets the other states after the counters have changed the record: nothing is left to do.
        """
        if state != pybreaker.STATE_HALF_OPEN:
            return
        self._is_probing = self._change(lambda known, now: known.probed(now))
        phase = self._known.phase(self._now())
        if phase == "half_open" and not self._is_probing:
            self._known_at = float("-inf")  # whether it is closed by then only the store knows
        if phase != "closed" and not self._is_probing:
            raise pybreaker.CircuitBreakerError

    @property
    def counter(self) -> int:
        """Return the consecutive failures; an open breaker has reached the limit."""
        return FAILURES if self._known.opened_at else self._known.failures

    def increment_counter(self) -> None:
        """Record a failure, which opens the breaker when it is the last one, or the probe's."""
        self._is_probing = False
        self._change(lambda known, now: known.failed(now))

    def success(self, _breaker: pybreaker.CircuitBreaker) -> None:
        """Record an answer, which closes the breaker after the probe and ends a row of failures."""
        self._is_probing = False
        self._known_at = self._clock.monotonic()
        if self._known.failures:
            # Others may have seen it fail since our call began.
            self._change(lambda known, now: None if known.phase(now) == "open" else known.closed())

    def _change(self, step: Callable[[BreakerState, float], BreakerState | None]) -> bool:
        """Apply `step` to the shared state; False when it says that there is nothing to do."""
        try:
            for _ in range(_RACES):
                old = self._states.read()[self._record]
                new = step(old, self._now())
                if new is None or new is old:
                    self._remember(old)
                    return new is not None
                if self._states.replace(self._record, old, new):
                    self._log_change(old, new)
                    self._remember(new)
                    return True
        except StatesUnavailable:
            new = step(self._known, self._now())
            self._remember(new or self._known)
            return new is not None
        return False

    def _remember(self, state: BreakerState) -> None:
        self._known, self._known_at = state, self._clock.monotonic()

    def _log_change(self, old: BreakerState, new: BreakerState) -> None:
        if bool(old.opened_at) != bool(new.opened_at):
            _LOG.warning("breaker %s is %s", self._record, "open" if new.opened_at else "closed")

    def _now(self) -> float:
        return self._clock.now().timestamp()
