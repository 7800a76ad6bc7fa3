"""Policy of the request limits: their settings, and the limit of each caller in each bucket. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from indexmill.contracts.identity import FREE, UNLIMITED, CallerContext, tier_of
from indexmill.platform.settings import FunctionSettings, HttpSettings

SERVICES: Final = ("scraper", "chunking", "embedding", "orchestrator")
"""Each has limits of its own; search belongs to Embedding."""
WORK: Final = "work"
READ: Final = "read"
TOKEN: Final = "token"
BUCKETS: Final = (WORK, READ, TOKEN)
"""Counted apart: GET and HEAD with a key, those with a token (it tells no tier), all others."""
SHARES: Final[Mapping[str, float]] = MappingProxyType({FREE: 0.6, "pro": 0.8, "enterprise": 1.0})
"""Of the bounds of backpressure, by tier; the system's own callers have the highest one."""
_MOST: Final = 1_000_000_000
_LONGEST_S: Final = 86_400
_HOUR_S: Final = 3600
_MINUTE_S: Final = 60

Reason = Literal["fair_share", "tier", "claims", "internal", "local"]
"""What a limit comes from; "local" is that of one process while the store is unavailable."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests within any window of so many seconds, and what a burst may add to them."""

    requests: int
    window_seconds: int
    burst: int = 0
    reason: Reason = "tier"

    @property
    def most(self) -> int:
        """Return how many requests are admitted within a window."""
        return self.requests + self.burst

    def times(self, factor: int) -> RateLimit:
        """Return a limit `factor` times as high."""
        return replace(self, requests=self.requests * factor, burst=self.burst * factor)


class UnreadableLimits(ValueError):
    """A `rate_limits` claim is not what Membership said it would be."""


def parse_rate(text: str) -> RateLimit | None:
    """Read the requests a minute of a tier; None for `unlimited`. Raises ValueError."""
    if text == UNLIMITED:
        return None
    requests = int(text)
    if not 1 <= requests <= _MOST:
        raise ValueError("a rate is a number of requests a minute, or unlimited")
    return RateLimit(requests, _MINUTE_S)


def is_internal(ctx: CallerContext) -> bool:
    """Return whether the caller is of the internal pool: the system's own key, or Membership says service."""
    return ctx.internal or ctx.caller_type == "service"


class FairShareStrategy(BaseModel):
    """Equal shares of a service's requests within an hour for the callers that were active lately.

    The floor is granted however many there are, so their shares may exceed the capacity: with 2,000 and 50
    from the 41st caller on. Beyond that the depth of the queues is the bound.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    INTERNAL_MULTIPLIER: ClassVar[int] = 20
    BURST: ClassVar[float] = 1.5

    capacity: int = Field(ge=1, le=_MOST)
    floor: int = Field(ge=1, le=_MOST)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `capacity=2000,floor=50`; None for `unlimited`. Raises ValueError."""
        if text == UNLIMITED:
            return None
        parts = [part.partition("=") for part in text.split(",")]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})

    def get_limit(self, ctx: CallerContext, active_callers: Callable[[], int | None]) -> RateLimit:
        """Return the caller's share; an internal caller's is independent of all others.

        While it is unknown how many callers were active, `active_callers` gives None and the floor counts.
        """
        if is_internal(ctx):
            return RateLimit(self.floor * self.INTERNAL_MULTIPLIER, _HOUR_S, reason="internal")
        active, base = active_callers(), self.floor
        if active is not None:
            base = max(base, self.capacity // max(1, active))
        return RateLimit(base, _HOUR_S, int(base * self.BURST) - base, "fair_share")


@dataclass(frozen=True, slots=True)
class MembershipTierStrategy:
    """The limits that Membership tells: the caller's own for the service, or those of its tier."""

    service: str
    tiers: Mapping[str, RateLimit | None]

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the limit; None for no limit."""
        own = claimed(ctx.raw_claims.get("rate_limits")).get(self.service)
        return own if own is not None else self.tiers[tier_of(ctx.tier)]


@dataclass(frozen=True, slots=True)
class CompositeStrategy:
    """The limits of one service: by tier for callers about whom Membership tells something, else a share.

    The internal pool is part of the fair share, whatever the tier.
    """

    fair_share: FairShareStrategy | None
    """None: no limit."""
    membership_tier: MembershipTierStrategy
    active_callers: Callable[[str], int | None]
    """How many callers were active in a bucket in the last hour; None while that is unknown."""
    read_factor: int

    def get_limit(self, ctx: CallerContext, bucket: str = WORK) -> RateLimit | None:
        """Return the caller's limit in a bucket; None for no limit."""
        limit: RateLimit | None = None
        if not is_internal(ctx) and (ctx.tier or ctx.raw_claims.get("rate_limits")):
            limit = self.membership_tier.get_limit(ctx)
        elif self.fair_share is not None:
            limit = self.fair_share.get_limit(ctx, lambda: self.active_callers(bucket))
        return limit if limit is None or bucket == WORK else limit.times(self.read_factor)


Rate = Annotated[RateLimit | None, BeforeValidator(parse_rate)]
Share = Annotated[FairShareStrategy | None, BeforeValidator(FairShareStrategy.parse)]


class LimitSettings(HttpSettings):
    """Limits of the requests to one service; only the template sets their values."""

    state_table: str
    rate_free: Rate
    rate_pro: Rate
    rate_enterprise: Rate
    read_factor: int = Field(ge=1)
    fair_share: Share

    def strategy(
        self,
        service: str,
        share: FairShareStrategy | None,
        active_callers: Callable[[str], int | None],
    ) -> CompositeStrategy:
        """Return the strategy of a service that divides `share` among its callers."""
        tiers = {FREE: self.rate_free, "pro": self.rate_pro, "enterprise": self.rate_enterprise}
        by_tier = MembershipTierStrategy(service, tiers)
        return CompositeStrategy(share, by_tier, active_callers, self.read_factor)


class PressureSettings(FunctionSettings):
    """Bounds of what may wait, which only the template sets, and the table with the queues' ages."""

    state_table: str
    max_queue_depth: int = Field(ge=1)
    max_queue_age_seconds: int = Field(ge=1)


def claimed(value: Any) -> Mapping[str, RateLimit]:
    """Return the limits of a `rate_limits` claim by service; one that names no service is for each.

    Names of other services are ignored. Raises UnreadableLimits for a wrong type or a number out of bounds.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UnreadableLimits("rate_limits is not an object")
    if "requests" in value or "window_seconds" in value:
        return dict.fromkeys(SERVICES, _claim(value))
    return {name: _claim(value[name]) for name in SERVICES if name in value}


def compact(limits: Mapping[str, RateLimit]) -> dict[str, dict[str, int]]:
    """Return a claim that `claimed` reads as `limits`."""
    return {
        name: {"requests": each.requests, "window_seconds": each.window_seconds, "burst": each.burst}
        for name, each in limits.items()
    }


def _claim(value: Any) -> RateLimit:
    if not isinstance(value, dict):
        raise UnreadableLimits("a rate limit is not an object")
    return RateLimit(
        _number(value.get("requests"), 1, _MOST),
        _number(value.get("window_seconds"), 1, _LONGEST_S),
        _number(value.get("burst", 0), 0, _MOST),
        "claims",
    )


def _number(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise UnreadableLimits(f"a number of a rate limit is not a whole number from {least} to {most}")
    return value
