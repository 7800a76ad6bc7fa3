"""Quotas: limits of each caller by its tier, as the template's parameters name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from indexmill.contracts.identity import FREE
from indexmill.platform.settings import FunctionSettings

UNLIMITED: Final = "unlimited"


class Quota(BaseModel):
    """Limits of each caller of one tier; None means no limit. Beyond the first four jobs wait."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_active: int | None = Field(default=None, ge=1)
    """Jobs started and not ended."""
    max_per_hour: int | None = Field(default=None, ge=1)
    """Jobs started within any hour."""
    burst: int | None = Field(default=None, ge=1)
    """Jobs started within any minute."""
    chunks_per_day: int | None = Field(default=None, ge=1)
    """Chunks made since midnight UTC: once they are reached, nothing starts before the next midnight."""
    job_chunks: int | None = Field(default=None, ge=1)
    """Chunks of one job's document; this and the next two are the budget of each of the caller's jobs."""
    job_bytes: int | None = Field(default=None, ge=1)
    """Bytes of the content that one job fetches."""
    job_cost: float | None = Field(default=None, gt=0)
    """US dollars that one job costs, by the table of prices."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `max_active=2,burst=20`, or `unlimited`; what is not named has no limit. Raises ValueError."""
        if text == UNLIMITED:
            return cls()
        parts = [part.partition("=") for part in text.split(",") if part.strip()]
        return cls.model_validate({name.strip(): value.strip() for name, _, value in parts})


QuotaText = Annotated[Quota, BeforeValidator(Quota.parse)]


class QuotaSettings(FunctionSettings):
    """Quotas of the tiers; only the template sets their values."""

    quota_free: QuotaText
    quota_pro: QuotaText
    quota_enterprise: QuotaText

    @property
    def quotas(self) -> Mapping[str, Quota]:
        """Return the quotas by tier."""
        return {FREE: self.quota_free, "pro": self.quota_pro, "enterprise": self.quota_enterprise}
