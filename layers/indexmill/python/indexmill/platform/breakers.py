"""Circuit breakers that all processes share: one record per breaker, changed by compare-and-set.

Each opens after 3 consecutive failures, or one refusal, for 30 s, then admits one half-open probe. A closed
breaker costs a process no request: it reads the state at its first call and after a minute without one, and
sees that others opened it when a call of its own fails. While the state store is unavailable, each process
counts alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, Literal, TypeVar

import pybreaker

from indexmill.contracts.errors import BreakerOpen, IndexmillError, Refused
from indexmill.platform.aws.clients import CallLimits
from indexmill.platform.aws.state_table import ConditionFailed, StateTable, StoreUnavailable
from indexmill.platform.time import Clock

EMBEDDING: Final = "embedding"
EMBEDDING_QUERY: Final = "embedding_query"
"""Of the endpoint too, for callers who wait: it pauses no stage."""
INDEX: Final = "index"
NAMES: Final = (EMBEDDING, EMBEDDING_QUERY, INDEX)
_FOLLOWS: Final = {EMBEDDING_QUERY: EMBEDDING}
"""While the second is open, so is the first, which neither probes the second nor closes it."""

FAILURES: Final = 3
OPEN_S: Final = 30.0
_PROBE_S: Final = 60.0
"""A probe without an outcome by then expires: another process may probe."""
_STREAK_S: Final = 60.0
"""Failures further apart are not consecutive."""

_KEPT_S: Final = 86_400
_LIMITS: Final = CallLimits(answer_s=2.0)
WHILE_A_CALLER_WAITS: Final = CallLimits(connect_s=0.3, answer_s=0.5, tries=1)
_NEW: Final = "attribute_not_exists(pk) OR expires_at <= :now OR version = :version"

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
    closed_at: float = 0.0
    """When it was closed last, 0 when that is not on record."""
    refusal: str = ""
    """What the other side said, when the last failure was a refusal."""

    def following(self, other: BreakerState) -> BreakerState:
        """Return this state as `other`, a breaker of the same dependency, makes it.

        What `other` saw before this one was closed is outdated: that was after an answer.
        """
        if other.failed_at <= self.closed_at or other.open_until <= self.open_until:
            return self
        return replace(
            self,
            failures=other.failures,
            failed_at=other.failed_at,
            opened_at=self.opened_at or other.opened_at,
            open_until=other.open_until,
            refusal=other.refusal,
        )

    def phase(self, now: float) -> Phase:
        """Return the phase at `now`. Half-open, it needs a probe: a paused stage must resume then."""
        if not self.opened_at:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def failed(self, now: float, refusal: str = "") -> BreakerState:
        """Return the state after a failure at `now`; one with a `refusal` opens it at once."""
        streak = self.failures + 1 if now - self.failed_at <= _STREAK_S else 1
        if not self.opened_at and streak < FAILURES and not refusal:
            return replace(self, failures=streak, failed_at=now, version=self.version + 1)
        if now < self.open_until:
            return self  # a call that was under way when it opened tells nothing new
        return BreakerState(
            failures=streak,
            failed_at=now,
            opened_at=self.opened_at or now,
            open_until=now + OPEN_S,
            version=self.version + 1,
            closed_at=self.closed_at,
            refusal=refusal,
        )

    def probed(self, now: float) -> BreakerState | None:
        """Return the state in which the caller probes; None when another process does, or it is too early."""
        if self.phase(now) != "half_open" or now < self.probe_until:
            return None
        return replace(self, probe_until=now + _PROBE_S, version=self.version + 1)

    def closed(self, now: float) -> BreakerState:
        """Return the state after a success at `now`."""
        return BreakerState(version=self.version + 1, closed_at=now)


_FIELDS: Final = frozenset(each.name for each in fields(BreakerState))


class BreakerStates:
    """Items "breaker#<name>" of the state table; one that was not changed for a day expires."""

    def __init__(
        self, table: str, clock: Clock, dynamodb: Any | None = None, *, limits: CallLimits | None = None
    ) -> None:
        """`limits` are the limits of requests that an answer waits for. Calls raise StoreUnavailable."""
        self._table = StateTable(table, clock, dynamodb, limits=limits or _LIMITS)

    def read(self) -> Mapping[str, BreakerState]:
        """Return every breaker of NAMES, by one request; one that never failed is closed."""
        items = self._table.read([f"breaker#{name}" for name in NAMES])
        return {
            name: BreakerState(**{key: value for key, value in item.items() if key in _FIELDS})
            for name in NAMES
            for item in [items.get(f"breaker#{name}", {})]
        }

    def replace(self, name: str, old: BreakerState, new: BreakerState) -> bool:
        """Write `new` if the version still is that of `old`, and return whether it was."""
        now = int(self._table.now())
        try:
            self._table.put(
                f"breaker#{name}",
                {**asdict(new), "expires_at": now + _KEPT_S},
                only_if="version = :version" if old.version else _NEW,
                values={":version": old.version} | ({} if old.version else {":now": now}),
            )
        except ConditionFailed:
            return False
        return True


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
            raise BreakerOpen(self._code, self._storage.wait_s(), self._storage.known_refusal) from error
        except IndexmillError as error:
            if self._is_answer(error) or self._storage.state != pybreaker.STATE_OPEN:
                raise
            wait_s = max(self._storage.wait_s(), error.retry_after or 0)
            raise BreakerOpen(error.code, wait_s, error.message) from error

    def _is_answer(self, error: BaseException) -> bool:
        """Return whether the dependency answered; a defect of this code is raised, as no evidence."""
        if not isinstance(error, IndexmillError):
            self._storage.abandon_probe()
            raise error
        # pybreaker counts the failure next, and does not say which it is.
        self._storage.refusal = error.message if isinstance(error, Refused) else ""
        return error.code not in self._outages or not error.retryable


class SharedStorage(pybreaker.CircuitMemoryStorage, pybreaker.CircuitBreakerListener):
    """pybreaker's storage over one shared record, which is changed by compare-and-set alone.

    Between two calls this process trusts what it knows. When the record cannot be read or written, it counts
    alone.
    """

    def __init__(self, name: str, states: BreakerStates, clock: Clock) -> None:
        """Read nothing yet."""
        super().__init__(pybreaker.STATE_CLOSED)
        self.refusal = ""
        """What the failure says that is counted next, when it is a refusal."""
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
    def known_refusal(self) -> str:
        """Return what the other side said when it refused us last; empty when it failed otherwise."""
        return self._known.refusal

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

    def abandon_probe(self) -> None:
        """End this process's probe without an outcome: calls are refused until the probe expires."""
        self._is_probing = False

    @property
    def counter(self) -> int:
        """Return the consecutive failures; an open breaker has reached the limit."""
        return FAILURES if self._known.opened_at else self._known.failures

    def increment_counter(self) -> None:
        """Record a failure, which opens the breaker when it is the last one, or the probe's."""
        self._is_probing = False
        self._change(lambda known, now: known.failed(now, self.refusal))

    def success(self, _breaker: pybreaker.CircuitBreaker) -> None:
        """Record an answer, which closes the breaker after the probe and ends a row of failures."""
        self._is_probing = False
        self._known_at = self._clock.monotonic()
        if self._known.failures:
            # Others may have seen it fail since our call began.
            self._change(lambda known, now: None if known.phase(now) == "open" else known.closed(now))

    def _change(self, step: Callable[[BreakerState, float], BreakerState | None]) -> bool:
        """Apply `step` to the shared state; False when it says that there is nothing to do."""
        try:
            for _ in range(_RACES):
                states = self._states.read()
                old = states[self._record]
                if self._record in _FOLLOWS:
                    old = old.following(states[_FOLLOWS[self._record]])
                new = step(old, self._now())
                if new is None or new is old:
                    self._remember(old)
                    return new is not None
                if self._states.replace(self._record, old, new):
                    self._log_change(old, new)
                    self._remember(new)
                    return True
        except StoreUnavailable:
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
