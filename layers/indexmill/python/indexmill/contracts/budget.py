"""Budget: what one job may use at most."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field

_MOST_CHUNKS = 1_000_000
_MOST_BYTES = 1_000_000_000_000
_MOST_USD = 1_000_000


class Budget(BaseModel):
    """Bounds of one job; null for none. A job that exceeds one of them after a stage fails."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    max_chunks: int | None = Field(default=None, ge=1, le=_MOST_CHUNKS)
    max_bytes: int | None = Field(default=None, ge=1, le=_MOST_BYTES)
    """Of the fetched content, unpacked."""
    max_cost_usd: float | None = Field(default=None, gt=0, le=_MOST_USD)
    """The price on the receipt until then, and the model's for the chunks that are still to be embedded."""

    def within(self, other: Self) -> Self | None:
        """Return the lower bound of both for each; None when there is no bound at all."""
        lower = {}
        for name in type(self).model_fields:
            bounds = [bound for bound in (getattr(self, name), getattr(other, name)) if bound is not None]
            if bounds:
                lower[name] = min(bounds)
        return type(self)(**lower) if lower else None
