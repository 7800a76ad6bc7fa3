"""A Scraper in memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from indexmill.contracts.messages import ScrapeTask
from indexmill.platform.consumer.deliveries import Delivery
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import INLINE_TEXT_BYTES, ScrapeParts
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import InlineIsolation, InMemoryFetcher, InMemoryRobotsCache
from tests.twins.state_table import unlimited_pace

SITE = "https://example.com"


@dataclass
class ScraperHarness:
    """Twins of everything around the Scraper."""

    fetcher: InMemoryFetcher = field(default_factory=InMemoryFetcher)
    blobs: InMemoryBlobs = field(default_factory=InMemoryBlobs)
    clock: FrozenClock = field(default_factory=FrozenClock)
    inline_text_bytes: int = INLINE_TEXT_BYTES
    known_for: timedelta = timedelta(days=15)
    rates: RateLimiter | None = None

    def parts(self) -> ScrapeParts:
        return ScrapeParts(
            fetcher=self.fetcher,
            robots=Robots(self.fetcher, InMemoryRobotsCache(), self.clock, user_agent="IndexmillBot/1.0"),
            rates=self.rates or unlimited_pace(self.clock),
            blobs=self.blobs,
            isolation=InlineIsolation(),
            clock=self.clock,
            inline_text_bytes=self.inline_text_bytes,
            known_for=self.known_for,
        )


def delivery(
    path: str,
    *,
    tries: int = 1,
    crashes: int = 0,
    last_error: str | None = None,
    job_id: str | None = "job",
    deadline: float = 1060.0,
    url: str = "",
) -> Delivery[ScrapeTask]:
    """A message about `path` of the site, or about `url`; the clock of the ScraperHarness starts at 1000."""
    task = ScrapeTask(
        message_id=f"m{path}", job_id=job_id, attempt=3, request_id="r", url=url or f"{SITE}{path}"
    )
    return Delivery(
        task,
        tries + crashes,
        deadline,
        tries=tries,
        crashes=crashes,
        last_error=last_error,
        receipt=f"r{path}",
    )
