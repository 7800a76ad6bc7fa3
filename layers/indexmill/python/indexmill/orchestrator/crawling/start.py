"""Start of a crawl, in the transaction that submits its first job."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from indexmill.contracts.crawl import CrawlKind, host_of
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.orchestrator.admission.admit import budget_of
from indexmill.orchestrator.crawling.follow import page_digest
from indexmill.orchestrator.store.crawls import Crawl, CrawlPage
from indexmill.orchestrator.store.rows import SHARED, JobSpec, NewJob

if TYPE_CHECKING:
    from indexmill.orchestrator.store.jobs import JobsTx


def check_room(tx: JobsTx, first: NewJob) -> None:
    """Refuse a crawl whose pages, with those that the caller's other crawls may add, are too many to wait.

    Its jobs are added later, by results, which cannot be refused. Raises CallerError(quota_exceeded).
    """
    most, asked = tx.limits.max_pending, first.rules.max_pages
    to_come = tx.pages_to_come(first.target.caller_id)
    if to_come + asked > most:
        raise CallerError(
            ErrorCode.QUOTA_EXCEEDED,
            f"Your crawls may still add {to_come} jobs, this one {asked}; at most {most} may be pending.",
            retry_after=60,
            hint="Send a lesser max_pages, or wait until a crawl has finished.",
        )


def start_crawl(tx: JobsTx, first: NewJob) -> None:
    """Insert the crawl of its first job, which is inserted."""
    url = first.target.url
    plan = JobSpec(**{name: getattr(first, name) for name in SHARED})
    plan = replace(plan, budget=budget_of(first.budget, tx.limits.of(first.tier)))
    kind: CrawlKind = "sitemap" if first.kind == "sitemap" else "crawl"
    crawl = Crawl(first.batch_id or "", first.target.caller_id, kind, plan, (host_of(url),))
    tx.add_crawl(crawl, CrawlPage(page_digest(url), first.job_id, 0))
