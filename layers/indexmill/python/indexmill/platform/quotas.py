"""Quotas: limits of each caller by its tier, as parameters of the template, and the use of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Final, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from indexmill.contracts.identity import FREE
from indexmill.contracts.job import WaitReason
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


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of one caller: jobs in flight and started lately."""

    caller_id: str
    tier: str
    active: int = 0
    in_hour: int = 0
    """Jobs started in the last hour, counted up to the tier's limit or `REMEMBERED`."""
    in_minute: int = 0
    hour_since: datetime | None = None
    """When the first of `in_hour` started."""
    minute_since: datetime | None = None
    newest: datetime | None = None
    """When a job of the caller started last, within the hour."""
    chunks_today: int = 0


@dataclass(frozen=True, slots=True)
class StartQuota:
    """One quota that decides when a caller's jobs start."""

    name: str
    """In GET /limits."""
    reason: WaitReason
    """For which a job waits while it is used up."""
    most: Callable[[Quota], int | None]
    used: Callable[[Usage], int]
    resets_at: Callable[[Usage, datetime], datetime | None] = lambda _usage, _now: None
    """When the use becomes less by itself; None when a job has to end."""
    counts_jobs: bool = True
    """Whether a job that starts uses one of it. One that does not only stops further starts."""

    def is_used_up(self, usage: Usage, quota: Quota) -> bool:
        """Return whether no further job may start."""
        most = self.most(quota)
        return most is not None and self.used(usage) >= most


def _after(since: datetime | None, span: timedelta) -> datetime | None:
    return since + span if since else None


def _midnight(now: datetime) -> datetime:
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)


START_QUOTAS: Final = (
    StartQuota("active", "quota_active", lambda quota: quota.max_active, lambda usage: usage.active),
    StartQuota(
        "hour",
        "quota_hourly",
        lambda quota: quota.max_per_hour,
        lambda usage: usage.in_hour,
        lambda usage, _now: _after(usage.hour_since, timedelta(hours=1)),
    ),
    StartQuota(
        "minute",
        "quota_hourly",
        lambda quota: quota.burst,
        lambda usage: usage.in_minute,
        lambda usage, _now: _after(usage.minute_since, timedelta(minutes=1)),
    ),
    StartQuota(
        "chunks_today",
        "quota_chunks",
        lambda quota: quota.chunks_per_day,
        lambda usage: usage.chunks_today,
        lambda usage, now: _midnight(now) if usage.chunks_today else None,
        counts_jobs=False,
    ),
)
"""In the order of GET /limits. Of several that are used up the last one is the reason to wait."""

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
