"""Strategies of the request limits: how many requests a caller may make, and within which time. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Literal, Protocol, Self

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.identity import CallerContext, tier_of

SERVICES: Final = ("orchestrator", "scraper", "chunking", "embedding")
"""Each has limits of its own; search belongs to Embedding."""
UNLIMITED: Final = "unlimited"
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


class RateLimitStrategy(Protocol):
    """Decides on limits."""

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the caller's limit; None for no limit."""
        ...


class FairShare(BaseModel):
    """Requests to a service within an hour, of all callers together, and the least share of each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    capacity: int = Field(ge=1, le=_MOST)
    floor: int = Field(ge=1, le=_MOST)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read `capacity=2000,floor=50`; None for `unlimited`. Raises ValueError."""
        if text == UNLIMITED:
            return None
        parts = [part.partition("=") for part in text.split(",")]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})


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


@dataclass(frozen=True, slots=True)
class FairShareStrategy:
    """Divides a service's hourly capacity equally among the callers that were active lately.

    The floor is granted however many there are, so their shares may exceed the capacity: with 2,000 and 50
    from the 41st caller on. Beyond that the depth of the queues is the bound.
    """

    share: FairShare | None
    """None: no limit."""
    active_callers: Callable[[], int | None]
    """How many callers were active in the last hour; None while that is unknown: then the floor counts."""
    burst: float = 1.5
    INTERNAL_MULTIPLIER: ClassVar[int] = 20

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the caller's share; an internal caller's is independent of all others."""
        if self.share is None:
            return None
        if is_internal(ctx):
            return RateLimit(self.share.floor * self.INTERNAL_MULTIPLIER, _HOUR_S, reason="internal")
        active = self.active_callers()
        base = self.share.floor
        if active is not None:
            base = max(base, self.share.capacity // max(1, active))
        return RateLimit(base, _HOUR_S, int(base * self.burst) - base, "fair_share")


@dataclass(frozen=True, slots=True)
class MembershipTierStrategy:
    """The limits that Membership tells: the caller's own, or those of its tier."""

    service: str
    tiers: Mapping[str, RateLimit | None]

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the limit of the claim `rate_limits` for this service, else that of the tier."""
        own = claimed(ctx.raw_claims.get("rate_limits")).get(self.service)
        return own if own is not None else self.tiers[tier_of(ctx.tier)]


@dataclass(frozen=True, slots=True)
class CompositeStrategy:
    """The tier of callers about whom Membership tells something, a fair share for all others."""

    fair_share: RateLimitStrategy
    membership_tier: RateLimitStrategy

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the limit; the internal pool is part of the fair share, whatever the tier."""
        if not is_internal(ctx) and (ctx.tier or ctx.raw_claims.get("rate_limits")):
            return self.membership_tier.get_limit(ctx)
        return self.fair_share.get_limit(ctx)


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
