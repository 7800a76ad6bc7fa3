"""Dry runs of several pages through the real scrape, at the pace of their sites."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from indexmill.contracts.cost import Prices
from indexmill.contracts.http_actions import DryRunPage
from indexmill.contracts.http_scraper import ScrapeNowRequest, ScrapeResult
from indexmill.contracts.identity import CallerContext, Doubt
from indexmill.contracts.job import SubmitRequest
from indexmill.orchestrator.store.queries import JobFilter, StageTotals
from indexmill.orchestrator.submission.dry_run import TryOut
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.security.urls import DomainRates, site_of
from indexmill.scraper.api import scrape_result
from indexmill.scraper.ports import Fetched
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.robots import Robots
from indexmill.scraper.scrape import ScrapeParts, execute_scrape
from tests.support.jobs import CALLER
from tests.support.orchestrator import OrchestratorHarness
from tests.support.scraper import ScraperHarness
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import InMemoryFetcher, InMemoryRobotsCache
from tests.twins.jobs import InMemoryJobs
from tests.twins.state_table import InMemoryHosts

SLOW, OTHER = "https://slow.example.com", "https://other.example.com"
PAGES = {f"{site}/{name}": f"<p>Page {name} with words.</p>" for site in (SLOW, OTHER) for name in "abcd"}


class SlowFetcher(InMemoryFetcher):
    """Takes a moment for each answer, so that requests that are sent together overlap."""

    async def fetch(self, url: str, **options: Any) -> Fetched:
        await asyncio.sleep(0.05)
        return await super().fetch(url, **options)


@dataclass
class Environments:
    """The Scraper as Lambda runs it: concurrent requests have a process each, and all share the stores."""

    rates: str
    fetcher: InMemoryFetcher = field(default_factory=lambda: SlowFetcher(PAGES))  # type: ignore[arg-type]
    clock: FrozenClock = field(default_factory=FrozenClock)
    most: Counter[str] = field(default_factory=Counter)
    """Scrapes of a site that there were at the same time."""

    def __post_init__(self) -> None:
        self._states, self._robots = InMemoryHosts(), InMemoryRobotsCache()
        self._idle: list[ScrapeParts] = []
        self._running: Counter[str] = Counter()
        self._lock = threading.Lock()

    def scrape(
        self, ctx: CallerContext, url: str, request_id: str, accept: Sequence[Doubt] | None = None
    ) -> ScrapeResult:
        site = site_of(url)
        with self._lock:
            parts = self._idle.pop() if self._idle else self._started()
            self._running[site] += 1
            self.most[site] = max(self.most[site], self._running[site])
        try:
            fetch = parts.rates.page(self.clock.monotonic() + 30.0)
            document = asyncio.run(execute_scrape(url, None, parts=parts, fetch=fetch))
            return scrape_result(document, ScrapeNowRequest(url=url), elapsed_ms=1)
        finally:
            parts.rates.flush()
            with self._lock:
                self._running[site] -= 1
                self._idle.append(parts)

    def _started(self) -> ScrapeParts:
        pace = RateLimiter(DomainRates.parse(self.rates), self._states, StoreClock(self.clock))
        parts = ScraperHarness(self.fetcher, clock=self.clock, rates=pace).parts()
        robots = Robots(self.fetcher, self._robots, self.clock, user_agent="IndexmillBot/1.0")
        return replace(parts, robots=robots)


class WithoutReceipts(InMemoryJobs):
    def receipt(self, wanted: JobFilter, most: int) -> list[StageTotals]:
        return []


def dry_run(scraper: Environments, *urls: str) -> list[DryRunPage]:
    body = SubmitRequest.model_validate({"dry_run": True, "urls": list(urls)})
    submit = OrchestratorHarness(WithoutReceipts(FrozenClock())).submit_jobs
    return TryOut(submit, scraper, Prices())(CALLER, body, "r").pages


def test_pages_of_one_site_are_asked_one_after_the_other() -> None:
    """Together, each would ask for robots.txt in its own process, and few turns were left for pages."""
    scraper = Environments("*=1:4")
    urls = (f"{SLOW}/a", f"{OTHER}/a", f"{SLOW}/b", f"{OTHER}/b", f"{SLOW}/c")
    pages = dry_run(scraper, *urls)
    assert [(page.url, page.allowed, page.error) for page in pages] == [(url, True, None) for url in urls]
    assert sorted(scraper.fetcher.requested) == sorted([*urls, f"{SLOW}/robots.txt", f"{OTHER}/robots.txt"])
    assert scraper.most == {"slow.example.com": 1, "other.example.com": 1}


def test_a_page_that_finds_no_turn_at_its_site_is_domain_busy() -> None:
    scraper = Environments("*=1:3")
    pages = dry_run(scraper, f"{SLOW}/a", f"{SLOW}/b", f"{SLOW}/c", f"{OTHER}/a")
    assert [(page.allowed, page.error and page.error.code) for page in pages] == [
        (True, None),
        (True, None),
        (None, "domain_busy"),
        (True, None),
    ]
