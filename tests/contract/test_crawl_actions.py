"""Cancels, quotas, retries and replays of crawls, on Postgres."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import BatchSummary, ReplayRequest, RetryRequest
from indexmill.contracts.identity import CallerContext, Quota
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.actions.cancel import CancelBatch
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from tests.support.crawler import Crawler, page, path_of, sitemap
from tests.support.cycles import cycle_over
from tests.support.job_stores import Sent, embed_task
from tests.support.jobs import CALLER, embedded
from tests.support.scraper import SITE
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryProgress


@pytest.fixture
def on_postgres(database_url: str) -> Iterator[Crawler]:
    with cycle_over(database_url) as cycle:
        yield Crawler(cycle)


def cancel(crawler: Crawler, ctx: CallerContext = CALLER) -> BatchSummary:
    """Cancel the crawl; return its counts."""
    store, sent = crawler.cycle.jobs.store, Sent()
    CancelBatch(store, sent, FrozenClock())(ctx, crawler.crawl_id, "enough")
    assert sent.rows == []
    return ReadJobs(store, InMemoryProgress(FrozenClock())).batch(ctx, crawler.crawl_id)


def test_a_canceled_crawl_cancels_its_jobs_and_gets_no_more(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/": page("/a", "/b", "/c"), "/a": page("/d"), "/b": page("/e"), "/c": page("/f")})
    crawler.start()
    crawler.step(crawler.queue.popleft())
    (read_already,) = [row for row in crawler.queue if path_of(row) == "/a"]
    result = crawler.cycle.scrape(read_already)
    summary = cancel(crawler)
    assert summary.crawl is not None
    assert (summary.total, summary.finished, summary.crawl.canceled, summary.crawl.pages) == (
        4,
        True,
        True,
        4,
    )
    assert summary.failed_codes == {"canceled": 4}
    crawler.take(result)
    assert crawler.visited() == ["/", "/a", "/b", "/c"]
    assert cancel(crawler) == summary
    with pytest.raises(CallerError) as foreign:
        cancel(crawler, CallerContext("another"))
    assert foreign.value.code == "not_found"


def test_a_finished_crawl_is_not_canceled_any_more(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/": page("/a"), "/a": page()})
    crawler.start()
    crawler.run()
    summary = cancel(crawler)
    assert summary.crawl is not None
    assert (summary.done, summary.finished, summary.crawl.canceled) == (2, True, False)


def test_a_published_page_is_spared_by_a_cancel(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/": page("/a"), "/a": page()})
    crawler.start()
    crawler.step(crawler.queue.popleft())
    while not any(row.stage == "embedding" for row in crawler.queue):
        crawler.step(crawler.queue.popleft())
    (row,) = [row for row in crawler.queue if row.stage == "embedding"]
    task = embed_task([row])
    crawler.cycle.jobs.publish(task.target.document_id, task.generation, row.job_id, task.content_sha256)
    summary = cancel(crawler)
    assert (summary.total, summary.failed, summary.finished) == (2, 1, False)
    crawler.take(embedded(row.job_id, row.attempt))
    assert cancel(crawler).done == 1


def test_pages_of_a_crawl_count_for_their_callers_quota(on_postgres: Crawler) -> None:
    crawler = on_postgres
    store = crawler.cycle.jobs.store
    assert isinstance(store, JobStore)
    store._limits = JobLimits({"free": Quota(max_active=2)})
    crawler.serve({"/": page(*(f"/{at}" for at in range(6))), **{f"/{at}": page() for at in range(6)}})
    crawler.start()
    most = 0
    while crawler.queue:
        active = [job for job in crawler.jobs() if job.status.value not in ("pending", "done", "failed")]
        most = max(most, len(active))
        crawler.step(crawler.queue.popleft())
    assert most == 2
    assert {job.status for job in crawler.jobs()} == {JobStatus.DONE}
    assert len(crawler.jobs()) == 7


def test_crawls_that_could_add_too_many_jobs_are_refused(on_postgres: Crawler) -> None:
    crawler = on_postgres
    store = crawler.cycle.jobs.store
    assert isinstance(store, JobStore)
    store._limits = JobLimits(max_pending=150)
    crawler.serve({"/": page("/a"), "/a": page()})
    crawler.start()
    with pytest.raises(CallerError) as refused:
        crawler.start(crawl={"max_pages": 60})
    assert refused.value.code == "quota_exceeded"
    crawler.run()
    crawler.start(crawl={"max_pages": 150})
    with pytest.raises(CallerError):
        crawler.start(crawl={"max_pages": 2})
    cancel(crawler)
    crawler.start(crawl={"max_pages": 150})


@pytest.mark.parametrize("by", ["its id", "its batch"])
def test_a_crawl_with_a_retried_job_may_add_jobs_again(on_postgres: Crawler, by: str) -> None:
    crawler = on_postgres
    store = crawler.cycle.jobs.store
    assert isinstance(store, JobStore)
    store._limits = JobLimits(max_pending=150)
    crawler.serve({"/": page("/a")})
    crawler.start()
    (missing,) = [job for job in crawler.run() if job.status is JobStatus.FAILED]
    failed_in = crawler.crawl_id
    crawler.start(crawl={"max_pages": 150})
    crawler.run()
    if by == "its id":
        crawler.cycle.jobs.retry(missing.job_id)
    else:
        wanted = RetryRequest(batch_id=failed_in, include_permanent=True)
        assert RetryJobs(store, Sent()).every(CALLER, wanted).retried == [missing.job_id]
    with pytest.raises(CallerError) as refused:
        crawler.start(crawl={"max_pages": 150 - 98 + 1})
    assert refused.value.code == "quota_exceeded"
    crawler.start(crawl={"max_pages": 150 - 98})


def test_a_sitemap_is_not_replayed(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/sitemap.xml": sitemap()})
    job_id = crawler.start(f"{SITE}/sitemap.xml", kind="sitemap")
    crawler.run()
    with pytest.raises(CallerError) as refused:
        ReplayJobs(crawler.cycle.jobs.store, Sent()).replay(CALLER, job_id, ReplayRequest(), "r")
    assert refused.value.code == "invalid_transition"
