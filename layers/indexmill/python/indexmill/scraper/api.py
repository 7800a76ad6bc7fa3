"""REST endpoints of the Scraper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter

from indexmill.contracts.content import Document
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_scraper import EnqueueResponse, ScrapeRequest, ScrapeResult
from indexmill.platform.http.app import Caller, RequestId, json_route
from indexmill.platform.time.deadline import within
from indexmill.scraper.enqueue import Enqueue
from indexmill.scraper.scrape import ScrapeParts, execute_scrape

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

    @router.post("/scrape", summary="Fetch one URL and return its Markdown")
    async def scrape_sync(body: ScrapeRequest, _ctx: Caller) -> ScrapeResult:
        """Scrape while the caller waits; nobody is called back, whether or not `job_id` is given."""
        started = api.parts.clock.monotonic()
        document = await within(
            limit_s,
            execute_scrape(body.url, body.job_id, parts=api.parts, deadline=started + limit_s),
            message="URL fetch too slow",
            hint="Use POST /orchestrator/jobs, which has no such limit.",
        )
        elapsed_ms = round((api.parts.clock.monotonic() - started) * 1000)
        return scrape_result(document, job_id=body.job_id, elapsed_ms=elapsed_ms)

    @router.post("/enqueue", status_code=202, summary="Queue one URL for scraping")
    async def scrape_async(body: ScrapeRequest, ctx: Caller, request_id: RequestId) -> EnqueueResponse:
        """Queue the URL; an internal caller's `job_id` is told of the result, without one nobody is."""
        return api.enqueue(ctx, body, request_id)

    return router


def scrape_result(document: Document, *, job_id: str | None, elapsed_ms: int) -> ScrapeResult:
    """Return what the caller gets. Raises CallerError(response_too_large) when the text is by reference."""
    if document.text is None:
        raise CallerError(
            ErrorCode.RESPONSE_TOO_LARGE,
            "The page has more than 4 MiB of text.",
            hint="Submit the URL with POST /orchestrator/jobs.",
        )
    return ScrapeResult(
        url=document.url,
        final_url=document.final_url,
        title=document.title,
        markdown=document.text,
        content_type=document.content_type,
        language=document.language,
        content_sha256=document.content_sha256,
        size=document.raw_ref.size if document.raw_ref is not None else 0,
        elapsed_ms=elapsed_ms,
        job_id=job_id,
    )
