"""The door of a service: refuses requests before their bodies are read.

Maintenance comes first: what backpressure reads may be what is being maintained. Both come before the limit,
so that a request which they refuse costs its caller nothing; the block is seen with the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from indexmill.contracts.identity import CallerContext, tier_of
from indexmill.platform.limits.clock import StoreClock
from indexmill.platform.limits.enforcer import (
    ActiveCallers,
    CallerBlocked,
    Decision,
    RateLimited,
    SlidingWindowEnforcer,
)
from indexmill.platform.limits.settings import READ, TOKEN, WORK, LimitSettings
from indexmill.platform.limits.strategies import is_internal
from indexmill.platform.limits.window import SLOTS
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock

_READS: Final = ("GET", "HEAD")
_ACCEPTING: Final = ("/enqueue", "/jobs", "/retry", "/replay", "/uploads")
"""Ends of the paths whose requests cause work that is done later, or prepare it."""
_MOST_AUDITED: Final = 1_000

Pressure = Callable[[CallerContext, str, str], None]
"""Refuses a request (caller, method, path) by raising."""


class Door:
    """One service's; `enter` admits a request or raises what it is answered with."""

    def __init__(
        self,
        enforcer: SlidingWindowEnforcer,
        observability: Observability,
        *,
        clock: StoreClock,
        exempt: Collection[str] = (),
        pressure: Pressure | None = None,
    ) -> None:
        """`exempt` are the paths, as routes have them, of requests that are neither limited nor counted."""
        self._enforcer = enforcer
        self._observability = observability
        self._clock = clock
        self._exempt = frozenset(exempt)
        self._pressure = pressure
        self._audited: dict[tuple[str, str], float] = {}
        self._failures_counted = 0

    def is_exempt(self, path: str) -> bool:
        """Return whether requests to `path` are neither limited nor counted."""
        return path in self._exempt

    def enter(self, ctx: CallerContext, method: str, path: str) -> Decision | None:
        """Admit the request; None when nothing limits it.

        Raises CallerBlocked, RateLimited, InMaintenance, or what backpressure raises.
        """
        bucket = TOKEN if "token" in ctx.raw_claims else READ if method in _READS else WORK
        try:
            if method == "POST" and path.endswith(_ACCEPTING):
                self._enforcer.check_open()
            if self._pressure is not None:
                self._pressure(ctx, method, path)
            return self._enforcer.check(ctx, bucket)
        except CallerBlocked:
            self._observability.count("caller_blocked_total")
            raise
        except RateLimited as error:
            self._note(ctx, bucket, error.decision)
            raise
        finally:
            self._count_failures()

    def _note(self, ctx: CallerContext, bucket: str, decision: Decision) -> None:
        """Count a refusal; the audit has one of a caller at most for each slot of its window."""
        tier = "internal" if is_internal(ctx) else tier_of(ctx.tier)
        self._observability.count("rate_limited_total", bucket=bucket, tier=tier)
        now, caller = self._clock.monotonic(), (bucket, ctx.caller_id)
        if now < self._audited.get(caller, now):
            return
        self._audited.pop(caller, None)
        self._audited[caller] = now + decision.window_seconds / SLOTS
        if len(self._audited) > _MOST_AUDITED:
            del self._audited[next(iter(self._audited))]
        self._observability.emit(
            "rate_limit_hit",
            ctx,
            bucket=bucket,
            limit=decision.limit,
            window_seconds=decision.window_seconds,
            reason=decision.reason,
        )

    def _count_failures(self) -> None:
        if failures := self._enforcer.failures - self._failures_counted:
            self._failures_counted += failures
            self._observability.count("rate_limit_store_unavailable", failures)


def build_active(service: str, settings: LimitSettings) -> ActiveCallers:
    """Build what a process knows of all callers of `service`, on the state table."""
    from indexmill.platform.aws.dynamodb_limits import DynamoDbLimits

    clock = StoreClock(SystemClock())
    return ActiveCallers(service, DynamoDbLimits(settings.state_table, clock), clock)


def build_door(
    service: str,
    settings: LimitSettings,
    observability: Observability,
    *,
    exempt: Collection[str] = (),
    pressure: Pressure | None = None,
    active: ActiveCallers | None = None,
) -> Door:
    """Build the door of a function of `service`, on the state table; `active` is that of the process."""
    active = active or build_active(service, settings)
    store, clock = active.store, active.clock
    strategies = settings.strategies(service, settings.fair_share, active.count)
    enforcer = SlidingWindowEnforcer(service, strategies, store, clock, active)
    return Door(
        enforcer,
        observability,
        clock=clock,
        exempt=exempt,
        pressure=pressure,
    )
