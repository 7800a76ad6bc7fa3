"""Settings of the Scraper's functions."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, ClassVar

from pydantic import BeforeValidator, Field

from indexmill.platform.limits.policy import LimitSettings, PressureSettings
from indexmill.platform.security.urls import DomainRates
from indexmill.platform.settings import FunctionSettings

USER_AGENT = "IndexmillBot/1.0 (document indexer; respects robots.txt)"


class ScraperSettings(FunctionSettings):
    """Settings of both functions."""

    scrape_queue_url: str
    bucket_name: str
    state_table: str
    allowed_private_hosts: str = ""
    """Comma-separated host:port pairs that may be private; empty on AWS."""
    user_agent: str = USER_AGENT
    renderer_url: str | None = None
    """Browser for pages without text: a DevTools endpoint, or chromium: and a program's path."""
    renderer_url_secret_arn: str | None = None
    max_crawl_delay_s: float = Field(default=60.0, ge=0)
    """Longest Crawl-delay of a site that is kept to."""
    domain_rates: Annotated[DomainRates, BeforeValidator(DomainRates.parse)]
    """How often sites are asked; only the template sets it."""
    max_content_bytes: int = Field(default=10 * 1024 * 1024, ge=1024)
    """Largest page, unpacked."""
    scrape_timeout_s: float = Field(default=30.0, gt=0)
    """Longest time for one page, all included."""
    connect_timeout_s: float = Field(default=5.0, gt=0)
    read_timeout_s: float = Field(default=10.0, gt=0)
    """Longest silence of a site."""


class ScraperApiSettings(ScraperSettings, LimitSettings, PressureSettings):
    """Of the HTTP function."""

    function: ClassVar[str] = "ScraperApi"


class ScraperWorkerSettings(ScraperSettings):
    """Of the queue's worker."""

    function: ClassVar[str] = "ScraperWorker"

    scrape_dlq_url: str
    callbacks_queue_url: str
    raw_retention_days: int = Field(default=400, ge=2)
    """Days after which the bucket deletes raw content."""

    @property
    def known_for(self) -> timedelta:
        """Return the age up to which known raw content is not stored again: half of its lifetime."""
        return timedelta(days=self.raw_retention_days / 2)
