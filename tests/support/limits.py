"""Request limits for tests: a process that enforces them, and an exact limiter to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from indexmill.contracts.identity import CallerContext
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.limits.enforcer import (
    ActiveCallers,
    LimitUse,
    RateLimited,
    SlidingWindowEnforcer,
)
from indexmill.platform.limits.policy import LimitSettings
from indexmill.platform.limits.store import LimitStore
from indexmill.platform.time import Clock
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryLimits

SERVICE = "scraper"
CALLER = CallerContext("0123456789abcdef", tier="pro")
OTHER = CallerContext("fedcba9876543210", tier="pro")
NO_TIER = CallerContext("no-tier")
INTERNAL = CallerContext("own-key", internal=True)


def settings(**given: str) -> LimitSettings:
    """Return small limits: 3, 6 and 60 a minute, and 100 an hour to share with a floor of 5."""
    values = {
        "state_table": "none",
        "rate_free": "3",
        "rate_pro": "6",
        "rate_enterprise": "60",
        "read_factor": "10",
        "fair_share": "capacity=100,floor=5",
        **given,
    }
    return LimitSettings.model_validate(values)


class JumpingClock(FrozenClock):
    """A clock that someone sets: `jump` moves the wall clock alone."""

    def jump(self, seconds: float) -> None:
        """Set the wall clock."""
        self._now += timedelta(seconds=seconds)


@dataclass
class Process:
    """One execution environment."""

    clock: StoreClock
    enforcer: SlidingWindowEnforcer
    active: ActiveCallers

    def ask(self, ctx: CallerContext = CALLER, bucket: str = "work") -> LimitUse | int | None:
        """Return the use of the limit; the seconds of Retry-After for a refusal."""
        try:
            return self.enforcer.check(ctx, bucket)
        except RateLimited as error:
            return error.use.reset_s

    def admits(self, ctx: CallerContext = CALLER, bucket: str = "work") -> bool:
        """Return whether a request is admitted."""
        return not isinstance(self.ask(ctx, bucket), int)


def process(
    store: LimitStore, clock: Clock, limits: LimitSettings | None = None, own: StoreClock | None = None
) -> Process:
    """Start one."""
    own = own or StoreClock(clock)
    if isinstance(store, InMemoryLimits):
        # Each has a client of its own, which is quiet alone.
        store = LimitStore("state", own, store.client)
    limits = limits or settings()
    active = ActiveCallers(SERVICE, store, own)
    strategy = limits.strategy(SERVICE, limits.fair_share, active.count)
    return Process(own, SlidingWindowEnforcer(SERVICE, strategy, active), active)


def exact(times: Sequence[float], window_s: float, most: int) -> list[bool]:
    """Return what an exact sliding window decides about requests at these times."""
    admitted: list[float] = []
    decisions = []
    for time in times:
        fits = sum(time - window_s < each <= time for each in admitted) < most
        decisions.append(fits)
        if fits:
            admitted.append(time)
    return decisions


def worst_window(admitted: Sequence[float], window_s: float) -> int:
    """Return the most admitted requests that any window (t - W, t] has."""
    return max((sum(end - window_s < each <= end for each in admitted) for end in admitted), default=0)
