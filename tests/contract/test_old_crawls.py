"""Ended crawls are deleted, and links that no crawl used for long, on Postgres."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import Job, JobStatus
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.store.sweep import Retention, SweepStore
from indexmill.platform.postgres.database import Connection, Database
from tests.support.crawler import Crawler, page, sitemap
from tests.support.cycles import cycle_over
from tests.support.jobs import CALLER
from tests.support.scraper import SITE
from tests.twins.clock import FrozenClock
from tests.twins.state_table import InMemoryProgress

AGED = {
    "jobs": ("created_at", "updated_at", "ended_at"),
    "outbox": ("created_at", "sent_at"),
    "crawls": ("created_at",),
    "page_links": ("used_at",),
}


@dataclass
class Old:
    """Crawls, and a way to let days pass."""

    crawler: Crawler
    view: SweepStore
    truth: Connection

    def age(self, days: float) -> None:
        for table, columns in AGED.items():
            earlier = ", ".join(f"{name} = {name} - interval '{days} days'" for name in columns)
            self.truth.execute(f"UPDATE {table} SET {earlier}".encode())

    def purged(self, kind: str, limit: int = 1_000) -> int:
        return self.view.purge(Retention(), limit)[kind]

    def crawl(self, pages: dict[str, str], **request: Any) -> list[Job]:
        self.crawler.serve(pages, '"1"')
        self.crawler.start(**request)
        return self.crawler.run()


@pytest.fixture
def old(database_url: str) -> Iterator[Old]:
    database = Database(database_url)
    with cycle_over(database_url) as cycle, psycopg.connect(database_url, autocommit=True) as truth:
        yield Old(Crawler(cycle), SweepStore(database), truth)
    database.close()


def test_a_crawl_is_deleted_when_none_of_its_jobs_can_be_tried_again(old: Old) -> None:
    crawler = old.crawler
    (missing,) = [job for job in old.crawl({"/": page("/a")}) if job.status is JobStatus.FAILED]
    old.age(8)
    crawler.retry(missing.job_id)
    old.age(8)
    assert old.purged("crawls") == 0
    crawler.run()
    old.age(6.9)
    assert old.purged("crawls") == 0
    old.age(0.2)
    assert old.purged("crawls") == 2
    assert old.purged("crawls") == 0
    left = "SELECT (SELECT count(*) FROM crawls), (SELECT count(*) FROM crawl_pages)"
    assert old.truth.execute(left).fetchall() == [(0, 0)]
    read = ReadJobs(crawler.cycle.jobs.store, InMemoryProgress(FrozenClock()))
    summary = read.batch(CALLER, crawler.crawl_id)
    assert (summary.total, summary.finished, summary.crawl) == (2, True, None)


def test_a_batch_of_deletions_has_few_crawls(old: Old) -> None:
    for _ in range(4):
        old.crawl({"/": page()})
    old.age(8)
    assert [old.purged("crawls", limit) for limit in (2, 40, 40, 40)] == [1, 2, 1, 0]


def test_a_retried_page_of_a_deleted_crawl_leads_nowhere(old: Old) -> None:
    (missing,) = [job for job in old.crawl({"/": page("/a")}) if job.status is JobStatus.FAILED]
    old.age(8)
    assert old.purged("crawls") == 2
    old.crawler.serve({"/a": page("/b"), "/b": page()})
    old.crawler.retry(missing.job_id)
    assert {job.status for job in old.crawler.run()} == {JobStatus.DONE}
    assert old.crawler.visited() == ["/", "/a"]


def test_a_sitemap_of_a_deleted_crawl_is_submitted_again(old: Old) -> None:
    (failed,) = old.crawl(
        {"/sitemap.xml": "<html>Not here</html>"}, url=f"{SITE}/sitemap.xml", kind="sitemap"
    )
    old.age(8)
    assert old.purged("crawls") == 1
    old.crawler.serve({"/sitemap.xml": sitemap("/a")})
    with pytest.raises(CallerError) as refused:
        old.crawler.retry(failed.job_id, kept=False)
    assert refused.value.code == "invalid_transition"


def test_a_site_that_is_crawled_now_and_then_stays_unchanged(old: Old) -> None:
    pages = {"/": page("/a"), "/a": page("/b"), "/b": page()}
    old.crawl(pages)
    for _ in range(2):
        old.age(80)
        assert {job.unchanged for job in old.crawl(pages)} == {True}
        assert old.crawler.visited() == ["/", "/a", "/b"]
    old.age(119)
    assert old.purged("page_links") == 0
    old.age(2)
    assert [old.purged("page_links", 2) for _ in range(3)] == [2, 1, 0]


def test_links_that_may_be_deleted_before_a_job_ends_are_not_relied_on(old: Old) -> None:
    pages = {"/": page("/a"), "/a": page()}
    old.crawl(pages)
    old.age(91)
    assert {job.unchanged for job in old.crawl(pages)} == {None}
    assert {job.unchanged for job in old.crawl(pages)} == {True}
    assert old.crawler.visited() == ["/", "/a"]
