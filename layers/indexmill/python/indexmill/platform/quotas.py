"""Quotas of each caller by its tier, with the use of each, and rates of sites: parameters of the template."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Annotated, Final, Self
from urllib.parse import urlsplit

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


_RATE_OF_HOST: Final = re.compile(
    r"(?P<host>[^=\s]+)=(?:(?P<rate>[0-9]{1,6}(?:[.][0-9]{1,6})?)(?::(?P<burst>[0-9]{1,6}))?|unlimited)"
)
_DEFAULT_PORTS: Final = (None, 80, 443)


@dataclass(frozen=True, slots=True)
class DomainRate:
    """Rate of one site."""

    per_second: float
    burst: int
    """Requests that may be sent at once when the site was left alone before; no more are in flight
    together."""

    @property
    def interval_s(self) -> float:
        """Return the seconds from one request to the next."""
        return 1 / self.per_second


DEFAULT_RATE: Final = DomainRate(1.0, 3)


@dataclass(frozen=True, slots=True)
class DomainRates:
    """Rates by host; None is no limit."""

    default: DomainRate | None = None
    hosts: Mapping[str, DomainRate | None] = field(default_factory=lambda: MappingProxyType({}))
    """By host, by host:port, and by "*.example.com" for every host below example.com."""

    @classmethod
    def parse(cls, text: str) -> DomainRates:
        """Read a setting such as "*=1:3,example.com=5:10,*.example.org=0.2,127.0.0.1=unlimited".

        An entry is HOST=RATE[:BURST] or HOST=unlimited, "*" every other host; without it that is
        `DEFAULT_RATE`. Raises ValueError.
        """
        hosts: dict[str, DomainRate | None] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            found = _RATE_OF_HOST.fullmatch(entry)
            if found is None or (found["rate"] is not None and float(found["rate"]) == 0):
                raise ValueError(f"not HOST=RATE[:BURST] or HOST=unlimited: {entry!r}")
            hosts[found["host"].lower()] = (
                None
                if found["rate"] is None
                else DomainRate(float(found["rate"]), max(1, int(found["burst"] or 1)))
            )
        return cls(hosts.pop("*", DEFAULT_RATE), hosts)

    @property
    def is_limited(self) -> bool:
        """Return whether any site has a limit."""
        return self.default is not None or any(self.hosts.values())

    def of(self, site: str) -> DomainRate | None:
        """Return the rate of a site: that of host and port, else of the host, else of a domain above it."""
        host = urlsplit(f"//{site}").hostname or site
        for name in (site, host):
            if name in self.hosts:
                return self.hosts[name]
        above = host
        while "." in above:
            above = above.partition(".")[2]
            if f"*.{above}" in self.hosts:
                return self.hosts[f"*.{above}"]
        return self.default


def site_of(url: str) -> str:
    """Return the site of a canonical URL: its host, with a port that is neither 80 nor 443.

    http and https of a host are one site, which has one pace.
    """
    parts = urlsplit(url)
    return (parts.hostname or "") if parts.port in _DEFAULT_PORTS else parts.netloc
