"""Start of a crawl, in the transaction that submits its first job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexmill.contracts.crawl import CrawlKind, host_of
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.orchestrator.admission.admit import budget_of
from indexmill.orchestrator.crawling.follow import page_digest
from indexmill.orchestrator.store.crawls import Crawl, CrawlPage, CrawlPlan
from indexmill.orchestrator.store.rows import NewJob

if TYPE_CHECKING:
    from indexmill.orchestrator.store.jobs import JobsTx


def check_room(tx: JobsTx, first: NewJob, request: SubmitRequest) -> None:
    """Refuse a crawl whose pages, with those that the caller's other crawls may add, are too many to wait.

    Its jobs are added later, by results, which cannot be refused. Raises CallerError(quota_exceeded).
    """
    most, asked = tx.limits.max_pending, request.rules.max_pages
    to_come = tx.pages_to_come(first.target.caller_id)
    if to_come + asked > most:
        raise CallerError(
            ErrorCode.QUOTA_EXCEEDED,
            f"Your crawls may still add {to_come} jobs, this one {asked}; at most {most} may be pending.",
            retry_after=60,
            hint="Send a lesser max_pages, or wait until a crawl has finished.",
        )


def start_crawl(tx: JobsTx, first: NewJob, request: SubmitRequest) -> None:
    """Insert the crawl of its first job, which is inserted."""
    url = first.target.url
    plan = CrawlPlan(
        rules=request.rules,
        tier=first.tier,
        caller_type=first.caller_type,
        job_type=first.job_type,
        priority=first.priority,
        forced=first.forced,
        mark_stale=first.mark_stale,
        budget=budget_of(first.budget, tx.limits.of(first.tier)),
        request_id=first.request_id,
        submitted_by=first.submitted_by,
        max_age_s=request.max_age or None,
        accept=request.accept,
        recipe=dict(first.recipe) if first.recipe is not None else None,
    )
    kind: CrawlKind = "sitemap" if request.kind == "sitemap" else "crawl"
    crawl = Crawl(first.batch_id or "", first.target.caller_id, kind, plan, (host_of(url),))
    tx.add_crawl(crawl, CrawlPage(page_digest(url), first.job_id, 0))
