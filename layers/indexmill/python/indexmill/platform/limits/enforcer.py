"""Enforcement of the request limits, by one conditional write for a request, and of backpressure.

The limits of all processes are one: the store decides. While it is unavailable each process admits what the
caller may at least, by itself; for ten minutes it keeps to the blocks and the maintenance that it saw last.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext, tier_of
from indexmill.platform.aws.state_table import StoreClock, StoreUnavailable
from indexmill.platform.limits.policy import SHARES, CompositeStrategy, PressureSettings, RateLimit, Reason
from indexmill.platform.limits.store import LimitStore, Load, Shared
from indexmill.platform.limits.window import SLOTS, Window, active_callers, admission, is_recent
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

SHARED_S: Final = 5.0
"""Time after which a process knows that maintenance began or ended."""
KEPT_S: Final = 600.0
"""Time after the last answer of the store for which blocks and maintenance hold without it."""
_MAINTENANCE_S: Final = 60
_REFUSED_S: Final = 1.0
"""Time for which a refusal is repeated without the store."""
_TRIES: Final = 3
_MOST_REMEMBERED: Final = 10_000
_ROUNDING_S: Final = 0.001
_SATURATED_S: Final = 30
"""Retry-After of what backpressure refuses."""
_LOAD_S: Final = 5.0
"""Time for which a load that was read is known."""


@dataclass(frozen=True, slots=True)
class LimitUse:
    """Use of a limit after one request, as the headers of its answer show it."""

    limit: int
    window_seconds: int
    remaining: int
    reset_s: int
    """Seconds until one more request is possible than now, if none comes meanwhile."""
    reason: Reason

    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(self.reset_s),
            "X-RateLimit-Reason": self.reason,
        }


class RateLimited(CallerError):
    """429: the caller has used its limit."""

    def __init__(self, use: LimitUse) -> None:
        """The caller may come back after `reset_s`."""
        super().__init__(
            ErrorCode.RATE_LIMITED,
            f"You may make {use.limit} of these requests in {use.window_seconds} s.",
            retry_after=use.reset_s,
            hint="GET /orchestrator/limits tells your limits and their use.",
        )
        self.use = use


class InMaintenance(TransientError):
    """503: an operator closed the service for new work."""

    def __init__(self, message: str) -> None:
        """The message is the operator's."""
        super().__init__(ErrorCode.MAINTENANCE, message, retry_after=_MAINTENANCE_S)


class CallerBlocked(CallerError):
    """403: an operator blocked the caller."""

    def __init__(self) -> None:
        """The reason is the operator's."""
        super().__init__(ErrorCode.CALLER_BLOCKED, "This caller is blocked.")


def key_of(service: str, bucket: str, caller_id: str) -> str:
    """Return the key of a caller's window."""
    return f"{service}#{bucket}#{caller_id}"


class ActiveCallers:
    """Active callers of a service, and maintenance, at most five seconds old."""

    def __init__(self, service: str, store: LimitStore, clock: StoreClock) -> None:
        """Nothing is known yet."""
        self.store = store
        self.clock = clock
        self._service = service
        self._read_at = -math.inf
        self._answered_at = -math.inf
        self._found: Shared | None = None
        self._maintenance: str | None = None

    def refresh(self, kept_s: float = SHARED_S) -> Shared:
        """Read again what is older than `kept_s`. Raises StoreUnavailable.

        The answer also corrects the clock, before anything is counted by it.
        """
        if self._found is None or not 0 <= self.clock.now() - self._read_at < kept_s:
            self._found = None
            self._found = self.store.shared(self._service)
            self._read_at, self._answered_at = self.clock.now(), self.clock.monotonic()
            self._maintenance = self._found.maintenance
        return self._found

    def is_recent(self) -> bool:
        """Return whether the store's last answer holds without it."""
        return self.clock.monotonic() - self._answered_at < KEPT_S

    @property
    def maintenance(self) -> str | None:
        """Message to callers while no work is accepted, as it was read last; None for an answer too old."""
        return self._maintenance if self.is_recent() else None

    def lost(self) -> None:
        """Forget who is active: the store is unavailable."""
        self._found = None

    def count(self, bucket: str) -> int | None:
        """Return how many callers were active in the last hour; None for unknown."""
        if self._found is None:
            return None
        return active_callers(self._found.active.get(bucket, {}), self.clock.now())

    def moved(self, bucket: str, old: int | None, new: int) -> None:
        """Count a caller as active now."""
        now = self.clock.now()
        known = self._found.active.get(bucket, {}) if self._found else {}
        over = [slot for slot in known if not is_recent(slot, now)]
        left = old if old is not None and is_recent(old, now) else None
        counters = self.store.move_active(self._service, bucket, left, new, over)
        if self._found is not None:
            self._found = replace(self._found, active={**self._found.active, bucket: counters})


class SlidingWindowEnforcer:
    """Admits a caller's requests to one service up to the limits of its strategy."""

    def __init__(
        self,
        service: str,
        strategy: CompositeStrategy,
        active: ActiveCallers,
    ) -> None:
        """Know nothing yet; store and clock are those of `active`."""
        self.clock = active.clock
        self._service = service
        self._strategy = strategy
        self._store = active.store
        self._active = active
        self._copies: dict[str, Window] = {}
        """Windows as they were last seen, in the order of their use."""
        self._seen: dict[str, float] = {}
        """Times at which the store said last that those callers are not blocked."""
        self._local: dict[str, Window] = {}
        self._blocked: dict[str, None] = {}
        """Callers that the store said last are blocked, in the order in which they were seen."""
        self.failures = 0
        """How often the store was unavailable."""

    def check_open(self) -> None:
        """Raise InMaintenance while no work is accepted. Counts no request."""
        if not self._store.is_quiet:
            try:
                self._active.refresh()
            except StoreUnavailable:
                self._lost()
        message = self._active.maintenance
        if message is not None:
            raise InMaintenance(message)

    def check(self, ctx: CallerContext, bucket: str) -> LimitUse | None:
        """Admit a request and count it; None when the caller has no limit.

        Raises RateLimited and CallerBlocked.
        """
        key = key_of(self._service, bucket, ctx.caller_id)
        if self._store.is_quiet:
            return self._check_alone(ctx, key, bucket)
        try:
            use = self._check_with_store(ctx, key, bucket)
        except StoreUnavailable:
            self._lost()
            return self._check_alone(ctx, key, bucket)
        except CallerBlocked:
            self._note(ctx.caller_id, blocked=True)
            raise
        except RateLimited:
            self._note(ctx.caller_id, blocked=False)
            raise
        self._note(ctx.caller_id, blocked=False)
        return use

    def _lost(self) -> None:
        """Count the failure and forget who is active."""
        self.failures += 1
        self._active.lost()

    def _note(self, caller_id: str, *, blocked: bool) -> None:
        """Remember what the store said."""
        self._blocked.pop(caller_id, None)
        if blocked:
            self._blocked[caller_id] = None
            if len(self._blocked) > _MOST_REMEMBERED:
                del self._blocked[next(iter(self._blocked))]

    def _check_with_store(self, ctx: CallerContext, key: str, bucket: str) -> LimitUse | None:
        self._active.refresh()
        limit = self._strategy.get_limit(ctx, bucket)
        if limit is not None:
            return self._check_everywhere(key, bucket, limit)
        if self._store.is_blocked(key):
            raise CallerBlocked
        return None

    def _check_alone(self, ctx: CallerContext, key: str, bucket: str) -> LimitUse | None:
        """Decide without the store, by the blocks that it reported in the last ten minutes."""
        if ctx.caller_id in self._blocked and self._active.is_recent():
            raise CallerBlocked
        return self._check_locally(key, self._strategy.get_limit(ctx, bucket))

    def _check_everywhere(self, key: str, bucket: str, limit: RateLimit) -> LimitUse:
        now, window_s = self.clock.now(), limit.window_seconds
        copy = self._copies.get(key)
        for _ in range(_TRIES):
            if copy is not None and copy.count(now, window_s) >= limit.most:
                # Others can only have added to it; but the caller may have been blocked since.
                self._check_blocked(key, now)
                raise RateLimited(use_of(copy, now, limit))
            write = admission(copy, now, window_s, limit.most, counts_as_active=limit.reason == "fair_share")
            admitted, found = self._store.admit(key, write)
            before = found or Window()
            if before.blocked:
                raise CallerBlocked
            if admitted:
                after = before.with_request(write)
                self._remember(key, after)
                self._follow_up(key, bucket, before, after, now, window_s)
                return use_of(after, now, limit)
            copy = before
            self._remember(key, copy)
        raise RateLimited(use_of(copy or Window(), now, limit))

    def _check_blocked(self, key: str, now: float) -> None:
        """Raise CallerBlocked; what was seen a second ago is not asked again."""
        if 0 <= now - self._seen.get(key, -math.inf) < _REFUSED_S:
            return
        if self._store.is_blocked(key):
            raise CallerBlocked
        self._seen[key] = now

    def _follow_up(
        self, key: str, bucket: str, before: Window, after: Window, now: float, window_s: int
    ) -> None:
        """Count the caller as active when ten minutes are new, and shorten an item that grew too long."""
        if after.seen is not None and after.seen != before.seen:
            self._active.moved(bucket, before.seen, after.seen)
        over = after.over(now, window_s)
        if len(over) > SLOTS:
            self._store.forget(key, over)

    def _remember(self, key: str, window: Window) -> None:
        self._copies.pop(key, None)
        self._copies[key] = window
        self._seen[key] = self.clock.now()
        if len(self._copies) > _MOST_REMEMBERED:
            oldest = next(iter(self._copies))
            del self._copies[oldest], self._seen[oldest]

    def _check_locally(self, key: str, limit: RateLimit | None) -> LimitUse | None:
        if limit is None:
            return None
        limit = replace(limit, reason="local")
        now, window_s = self.clock.now(), limit.window_seconds
        window = self._local.pop(key, Window())
        write = admission(window, now, window_s, limit.most, counts_as_active=False)
        fits = window.count(now, window_s) < limit.most
        self._local[key] = window.with_request(write) if fits else window
        if len(self._local) > _MOST_REMEMBERED:
            del self._local[next(iter(self._local))]
        use = use_of(self._local[key], now, limit)
        if not fits:
            raise RateLimited(use)
        return use


def use_of(window: Window, now: float, limit: RateLimit) -> LimitUse:
    """Return how much of the limit is used and left in the window."""
    count = window.count(now, limit.window_seconds)
    # One more than now is possible when the oldest leaves; when the limit has shrunk, when enough of them do.
    wait_s = window.wait_s(now, limit.window_seconds, min(limit.most, count) if count else 1)
    # A millisecond more than needed: times are rounded.
    reset_s = math.ceil(wait_s + _ROUNDING_S) if count else 0
    return LimitUse(limit.most, limit.window_seconds, max(0, limit.most - count), reset_s, limit.reason)


class Backpressure:
    """Refuses new work while too much of it waits, or waits too long already.

    Callers of lower tiers are refused first: the room that they leave is for the others.
    """

    def __init__(
        self,
        load: Callable[[], Load],
        settings: PressureSettings,
        clock: Clock,
        observability: Observability,
        *,
        routes: Collection[tuple[str, str]],
    ) -> None:
        """`load` returns the load, counted up to the bound at least; TransientError says that it is unknown.

        `routes` are methods and paths, as routes have them, of the requests that add work.
        """
        self._read = load
        self._settings = settings
        self._clock = clock
        self._observability = observability
        self._routes = frozenset(routes)
        self._known = Load(0)
        self._read_at = -math.inf

    def __call__(self, ctx: CallerContext, method: str, path: str) -> None:
        """Return, or raise CallerError(queue_saturated)."""
        if (method, path) not in self._routes:
            return
        load, tier = self._load(), "internal" if ctx.internal else tier_of(ctx.tier)
        share = SHARES.get(tier, 1.0)
        deep = load.depth > share * self._settings.max_queue_depth
        old = load.age_s > share * self._settings.max_queue_age_seconds
        if deep or old:
            self._observability.count("queue_saturated_total", tier=tier)
            raise CallerError(
                ErrorCode.QUEUE_SATURATED,
                f"Queue saturated ({load.depth} pending). Try again shortly.",
                retry_after=_SATURATED_S,
            )

    def _load(self) -> Load:
        """Return the load of at most five seconds ago; none while it is unknown: then nothing is refused."""
        now = self._clock.monotonic()
        if now < self._read_at + _LOAD_S:
            return self._known
        try:
            self._known = self._read()
        except TransientError as error:
            self._known = Load(0)
            self._observability.log.warning("queue_depth.unavailable", extra={"code": error.code})
            self._observability.count("queue_depth_unavailable_total")
        # After the read: one that takes long must not be followed by the next one at once.
        self._read_at = self._clock.monotonic()
        return self._known
