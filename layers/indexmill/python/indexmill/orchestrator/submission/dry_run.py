"""Dry run of a submit: what its pages are and cost, without a job."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol
from urllib.parse import urlsplit

from indexmill.contracts.content import ChunkSettings
from indexmill.contracts.cost import Prices, Spent
from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, Trait, codes
from indexmill.contracts.http_actions import DryRun, DryRunError, DryRunPage
from indexmill.contracts.http_scraper import ScrapeResult
from indexmill.contracts.identity import CallerContext, Doubt
from indexmill.contracts.job import JobStatus, SubmitRequest
from indexmill.orchestrator.admission.admit import admission_tier
from indexmill.orchestrator.store.queries import JobFilter, StageTotals
from indexmill.orchestrator.submission.submit import SubmitJobs, owner_of

MAX_URLS: Final = 5
_BYTES_PER_TOKEN: Final = 4.0
_LOOKED_AT: Final = 1_000
"""Jobs whose receipts an estimate is made of."""
_REFUSALS: Final = frozenset({ErrorCode.ROBOTS_DISALLOWED, ErrorCode.ROBOTS_NOINDEX})
_AFTER_ROBOTS: Final = codes(Trait.AFTER_ROBOTS)
_TYPICAL: Final = Spent(
    gb_s=0.1, invocations=0.6, sqs_requests=1.2, sqs_units=1.2, s3_writes=1, dynamodb_writes=0.5
)
"""Of one page of ten chunks in full batches, where the caller has no receipts yet."""
_TYPICAL_CHUNKS: Final = 10


class Scraper(Protocol):
    """The Scraper's synchronous scrape."""

    def scrape(
        self, ctx: CallerContext, url: str, request_id: str, accept: Sequence[Doubt] | None = None
    ) -> ScrapeResult:
        """Return the page as `POST /scraper/scrape` does for the caller; raises its errors by code."""
        ...


@dataclass(frozen=True, slots=True)
class TryOut:
    """The dry run use case."""

    submit: SubmitJobs
    scraper: Scraper
    prices: Prices

    def __call__(
        self, ctx: CallerContext, request: SubmitRequest, request_id: str, idempotency_key: str | None = None
    ) -> DryRun:
        """Return what the submit would do; its pages are fetched, and nothing is kept of them.

        Raises what the submit would raise, and CallerError(validation_error) for too many URLs.
        """
        store, owner = self.submit.store, owner_of(ctx, request)
        self.submit.check(ctx, request.model_copy(update={"dry_run": None}), idempotency_key)
        urls = list(request.urls or ()) if request.url is None else [request.url]
        if not urls or len(urls) > MAX_URLS:
            raise CallerError(
                ErrorCode.VALIDATION_ERROR,
                f"A dry run is for 1 to {MAX_URLS} URLs.",
                field="body.dry_run",
            )
        usd_per_chunk = self._usd_per_chunk(owner)

        def look(url: str) -> DryRunPage:
            try:
                return _page(url, self.scraper.scrape(ctx, url, request_id, request.accept), usd_per_chunk)
            except IndexmillError as error:
                return _refused(url, error)

        # Pages of one site one after the other: together they would use up its tokens for its robots.txt.
        sites: dict[str, list[str]] = {}
        for url in urls:
            sites.setdefault(urlsplit(url).netloc, []).append(url)
        with ThreadPoolExecutor(MAX_URLS) as threads:
            looked = threads.map(lambda own: [look(url) for url in own], sites.values())
            by_url = {page.url: page for page in chain.from_iterable(looked)}
        pages = [by_url[url] for url in urls]
        (_, _, pending), max_pending = store.read(
            lambda tx: (tx.usage(owner.caller_id, admission_tier(owner)), tx.limits.max_pending)
        )
        crawls = request.kind in ("crawl", "sitemap")
        jobs = request.rules.max_pages if crawls else len(urls)
        return DryRun(
            pages=pages,
            jobs=jobs,
            chunks=sum(page.chunks or 0 for page in pages),
            usd=sum(page.usd or 0.0 for page in pages) * (jobs if crawls else 1),
            pending=pending,
            max_pending=max_pending,
        )

    def _usd_per_chunk(self, owner: CallerContext) -> float:
        """Return the price of a chunk by the caller's own jobs, else that of a typical page."""
        wanted = JobFilter(owner.caller_id, status=JobStatus.DONE.value)
        totals: Sequence[StageTotals] = self.submit.store.read(lambda tx: tx.receipt(wanted, _LOOKED_AT))
        spent = next((each.spent for each in totals if each.stage is None), Spent())
        if spent.chunks:
            return self.prices.of(spent) / spent.chunks
        return self.prices.of(_TYPICAL) / _TYPICAL_CHUNKS


def estimated_chunks(text: str) -> int:
    """Return about how many chunks a text has."""
    settings = ChunkSettings()
    tokens = len(text.encode()) / _BYTES_PER_TOKEN
    return max(1, math.ceil(tokens / (settings.max_tokens - settings.overlap_tokens)))


def _page(url: str, found: ScrapeResult, usd_per_chunk: float) -> DryRunPage:
    chunks = estimated_chunks(found.markdown or "")
    return DryRunPage(
        url=url,
        allowed=True,
        error=None,
        final_url=found.final_url,
        content_type=found.content_type,
        title=found.title,
        size=found.size,
        chunks=chunks,
        usd=chunks * usd_per_chunk,
    )


def _refused(url: str, error: IndexmillError) -> DryRunPage:
    asked = error.code in _AFTER_ROBOTS or error.code.startswith("http_")
    return DryRunPage(
        url=url,
        allowed=False if error.code in _REFUSALS else (True if asked else None),
        error=DryRunError(code=error.code, message=error.message),
        final_url=None,
        content_type=None,
        title=None,
        size=None,
        chunks=None,
        usd=None,
    )
