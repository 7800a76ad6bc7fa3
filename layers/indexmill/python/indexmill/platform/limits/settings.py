"""Settings of the request limits, and the strategies that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

from indexmill.contracts.identity import FREE, CallerContext
from indexmill.platform.limits.strategies import (
    CompositeStrategy,
    FairShare,
    FairShareStrategy,
    MembershipTierStrategy,
    RateLimit,
    RateLimitStrategy,
    parse_rate,
)
from indexmill.platform.settings import HttpSettings

WORK: Final = "work"
READ: Final = "read"
TOKEN: Final = "token"
BUCKETS: Final = (WORK, READ, TOKEN)
"""Counted apart: GET and HEAD with a key, those with a token (it tells no tier), all others."""

Rate = Annotated[RateLimit | None, BeforeValidator(parse_rate)]
Share = Annotated[FairShare | None, BeforeValidator(FairShare.parse)]


class LimitSettings(HttpSettings):
    """Limits of the requests to one service; only the template sets their values."""

    state_table: str
    rate_free: Rate
    rate_pro: Rate
    rate_enterprise: Rate
    read_factor: int = Field(ge=1)
    fair_share: Share

    def strategies(
        self, service: str, share: FairShare | None, active_callers: Callable[[str], int | None]
    ) -> dict[str, RateLimitStrategy]:
        """Return a service's strategy for each bucket; `active_callers` is asked with a bucket."""
        tiers = {FREE: self.rate_free, "pro": self.rate_pro, "enterprise": self.rate_enterprise}

        def strategy(bucket: str, factor: int) -> RateLimitStrategy:
            shares = FairShareStrategy(share, lambda: active_callers(bucket))
            return _Times(CompositeStrategy(shares, MembershipTierStrategy(service, tiers)), factor)

        return {bucket: strategy(bucket, 1 if bucket == WORK else self.read_factor) for bucket in BUCKETS}


class _Times:
    """A strategy whose limits are all higher."""

    def __init__(self, strategy: RateLimitStrategy, factor: int) -> None:
        self._strategy = strategy
        self._factor = factor

    def get_limit(self, ctx: CallerContext) -> RateLimit | None:
        """Return the limit, so many times as high."""
        limit = self._strategy.get_limit(ctx)
        return limit if limit is None or self._factor == 1 else limit.times(self._factor)
