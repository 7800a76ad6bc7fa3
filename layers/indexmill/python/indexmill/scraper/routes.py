"""The Scraper over HTTP."""

from __future__ import annotations

from fastapi import APIRouter

from indexmill.contracts.http_scraper import EnqueueResponse, ScrapeRequest, ScrapeResult
from indexmill.platform.http.app import Caller, RequestId, json_route
from indexmill.platform.time.deadline import within
from indexmill.scraper.answer import scrape_result
from indexmill.scraper.scrape import execute_scrape
from indexmill.scraper.wiring import ScraperApi

_MAX_BODY = 256 * 1024


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
        return api.enqueue(body, internal=ctx.internal, request_id=request_id)

    return router
