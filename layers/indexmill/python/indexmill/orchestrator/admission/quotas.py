"""Quotas of the tiers, in the text form of the template's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.identity import FREE, CallerContext, tier_of

INTERNAL: Final = "internal"
"""Tier of jobs of the system's own callers, which have no quota."""
UNLIMITED: Final = "unlimited"
MULTIPLIERS: Final[Mapping[str, int]] = MappingProxyType({FREE: 1, "pro": 2, "enterprise": 3, INTERNAL: 3})
"""What a tier makes of a job's priority."""


class Quota(BaseModel):
    """Limits of each caller of one tier; None means no limit. Beyond them jobs wait, they are not refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_active: int | None = Field(default=None, ge=1)
    """Jobs started and not ended."""
    max_per_hour: int | None = Field(default=None, ge=1)
    """Jobs started within any hour."""
    burst: int | None = Field(default=None, ge=1)
    """Jobs started within any minute."""
    chunks_per_day: int | None = Field(default=None, ge=1)
    """Chunks made since midnight UTC: once they are reached, nothing starts before the next midnight."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `max_active=2,burst=20`, or `unlimited`; what is not named has no limit. Raises ValueError."""
        if text == UNLIMITED:
            return cls()
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})


@dataclass(frozen=True, slots=True)
class Limits:
    """Quotas by tier and the global limits; without arguments nothing is limited."""

    quotas: Mapping[str, Quota] = field(default_factory=dict)
    """By tier."""
    window: int = 1_000_000
    """Jobs of all callers together that are started and not ended."""
    max_pending: int = 10_000
    """Jobs of one caller that may wait; further ones are refused."""

    def of(self, tier: str) -> Quota:
        """Return the quota of a tier."""
        return self.quotas.get(tier, _NONE)


_NONE: Final = Quota()


def admission_tier(ctx: CallerContext) -> str:
    """Return the tier under which a caller's jobs are admitted."""
    return INTERNAL if ctx.internal else tier_of(ctx.tier)
