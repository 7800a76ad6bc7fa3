"""REST endpoints of the Scraper."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Final

from fastapi import APIRouter

from indexmill.contracts.content import DetailedDocument, Document, PageMetadata
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_scraper import EnqueueResponse, ScrapeNowRequest, ScrapeRequest, ScrapeResult
from indexmill.platform.http.app import Caller, RequestId
from indexmill.platform.http.guard import json_route, scoped
from indexmill.platform.time import within
from indexmill.scraper.enqueue import Enqueue
from indexmill.scraper.extract.content import Wanted
from indexmill.scraper.scrape import ScrapeParts, execute_scrape, is_long

MAX_ANSWER_TEXT_BYTES: Final = 4 * 1024 * 1024
_MAX_BODY: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class ScraperApi:
    """Use cases behind the routes."""

    parts: ScrapeParts
    enqueue: Enqueue


def routes(api: ScraperApi, limit_s: float) -> APIRouter:
    """Return the router over `api`; `limit_s` is the longest synchronous scrape."""
    router = APIRouter(prefix="/scraper", route_class=json_route(_MAX_BODY), tags=["scraper"])

    @router.post(
        "/scrape", summary="Fetch one URL and return its text", openapi_extra=scoped("scraper:write")
    )
    async def scrape_sync(body: ScrapeNowRequest, _ctx: Caller) -> ScrapeResult:
        """Scrape while the caller waits; nobody is called back, whether or not `job_id` is given."""
        started = api.parts.clock.monotonic()
        accept = dict.fromkeys(body.accept or (), True)
        wanted = Wanted("html" in body.formats, details=True, whole=not body.only_main_content, **accept)
        parts = replace(api.parts, wanted=wanted)
        try:
            document = await within(
                limit_s,
                execute_scrape(body.url, body.job_id, parts=parts, fetch=parts.rates.page(started + limit_s)),
                message="URL fetch too slow",
                hint="Use POST /orchestrator/jobs, which has no such limit.",
            )
        finally:
            await asyncio.to_thread(parts.rates.flush)
        elapsed_ms = round((api.parts.clock.monotonic() - started) * 1000)
        return scrape_result(document, body, elapsed_ms=elapsed_ms)

    @router.post(
        "/enqueue",
        status_code=202,
        summary="Queue one URL for scraping",
        openapi_extra=scoped("scraper:write"),
    )
    async def scrape_async(body: ScrapeRequest, ctx: Caller, request_id: RequestId) -> EnqueueResponse:
        """Queue the URL; an internal caller's `job_id` is told of the result, without one nobody is."""
        return api.enqueue(ctx, body, request_id)

    return router


def scrape_result(document: Document, asked: ScrapeNowRequest, *, elapsed_ms: int) -> ScrapeResult:
    """Return what the caller gets. Raises CallerError(response_too_large)."""
    details = document if isinstance(document, DetailedDocument) else None
    html = details.html if details is not None else None
    # Long text is by reference; the rest of an answer is short.
    if document.text is None or is_long(html or "", MAX_ANSWER_TEXT_BYTES - len(document.text.encode())):
        raise CallerError(
            ErrorCode.RESPONSE_TOO_LARGE,
            "The page has more than 4 MiB of text and HTML.",
            hint="Submit the URL with POST /orchestrator/jobs.",
        )
    return ScrapeResult(
        url=document.url,
        final_url=document.final_url,
        title=document.title,
        markdown=document.text if "markdown" in asked.formats else None,
        html=html,
        metadata=details.metadata if details is not None else PageMetadata(title=document.title),
        content_type=document.content_type,
        language=document.language,
        content_sha256=document.content_sha256,
        size=document.raw_ref.size if document.raw_ref is not None else 0,
        rendered=document.rendered,
        elapsed_ms=elapsed_ms,
        job_id=asked.job_id,
    )
