"""Crawls: a batch grows with the links of its pages. One suite over every store, with the scrape worker."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import BatchSummary, ReplayRequest
from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import ScrapeTask, StageResult, read
from indexmill.orchestrator.actions.cancel import CancelBatch
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.admission.admit import Limits
from indexmill.orchestrator.jobs.rows import OutboxRow
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.quotas import Quota
from indexmill.scraper.ports import Fetched, Validators
from tests.support.cycles import RECIPE, Cycle, cycle_over
from tests.support.job_stores import Sent, embed_task
from tests.support.jobs import CALLER, chunked, embedded
from tests.support.scraper import SITE
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import Redirect
from tests.twins.jobs import InMemoryJobs
from tests.twins.progress import InMemoryProgress
from tests.twins.uploads import InMemoryUploads

HOME = f"{SITE}/"


def page(*links: str, text: str = "Some words.") -> str:
    anchors = "".join(f'<a href="{link}">x</a>' for link in links)
    return f"<main><p>{text}</p>{anchors}</main>"


@dataclass
class Crawler:
    """Crawls over a site in memory, a batch of messages at a time."""

    cycle: Cycle
    queue: deque[OutboxRow] = field(default_factory=deque)
    crawl_id: str = ""

    def serve(self, pages: dict[str, str], etag: str | None = None) -> None:
        """Let the site have these pages, by path."""
        for path, html in pages.items():
            url = f"{SITE}{path}"
            self.cycle.scraper.fetcher.pages[url] = Fetched(
                url, 200, "text/html", "utf-8", html.encode(), validators=Validators(etag=etag, url=url)
            )

    def start(self, url: str = HOME, *, recipe: Any = RECIPE, kind: str = "crawl", **request: Any) -> str:
        """Submit a crawl and return its first job's id."""
        sent, blobs = Sent(), self.cycle.scraper.blobs
        body = SubmitRequest.model_validate({"url": url, "corpus_name": "docs", "kind": kind, **request})
        submit = SubmitJobs(self.cycle.jobs.store, sent, blobs, InMemoryUploads(blobs), recipe=recipe)
        accepted = submit(CALLER, body, "r")
        assert accepted.batch_id is not None
        self.crawl_id = accepted.batch_id
        self.queue.extend(sent.rows)
        return accepted.job_id

    def step(self, row: OutboxRow) -> list[StageResult]:
        """Let a message's worker answer, and apply that; what follows is queued. Return its results."""
        jobs = self.cycle.jobs
        if row.stage == "scraping":
            result = self.cycle.scrape(row)
        elif row.stage == "chunking":
            result = chunked(row.job_id, row.attempt)
        else:
            task = embed_task([row])
            jobs.publish(task.target.document_id, task.generation, row.job_id, task.content_sha256)
            result = embedded(row.job_id, row.attempt)
        self.take(result)
        return [result]

    def take(self, *results: StageResult) -> None:
        """Apply results and queue what follows."""
        for change in self.cycle.jobs.changes(*results):
            self.queue.extend(change.outbox)

    def run(self, chance: random.Random | None = None) -> list[Job]:
        """Work until nothing is left, in some order; return the crawl's jobs, the first one first."""
        while self.queue:
            at = chance.randrange(len(self.queue)) if chance else 0
            row = self.queue[at]
            del self.queue[at]
            self.step(row)
        return self.jobs()

    def jobs(self) -> list[Job]:
        """Return the crawl's jobs, the first one first."""
        store = self.cycle.jobs.store
        if isinstance(store, InMemoryJobs):
            ids = [row["id"] for row in store.jobs.values() if row["batch_id"] == self.crawl_id]
            return [self.cycle.jobs.job(each) for each in ids]
        return self.cycle.jobs.find(batch_id=self.crawl_id)[::-1]

    def visited(self) -> list[str]:
        """Return the paths of the crawl's jobs, sorted."""
        return sorted(job.url.removeprefix(SITE) for job in self.jobs())


@pytest.fixture(params=["twin", "postgres"])
def crawler(request: pytest.FixtureRequest) -> Iterator[Crawler]:
    with cycle_over(request.param, request) as cycle:
        yield Crawler(cycle)


def test_a_crawl_visits_every_page_once(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a", "/b"), "/a": page("/b", "/c", "/"), "/b": page("/a#x"), "/c": page()})
    first = crawler.start()
    jobs = crawler.run()
    assert crawler.visited() == ["/", "/a", "/b", "/c"]
    assert {job.status for job in jobs} == {JobStatus.DONE}
    assert {job.job_id: job.kind for job in jobs} == {
        job.job_id: "crawl" if job.job_id == first else "page" for job in jobs
    }


def test_the_rules_of_a_crawl_hold_for_its_pages(crawler: Crawler) -> None:
    crawler.serve(
        {
            "/": page("/docs/a", "/docs/old/b", "/blog/c", "https://other.example/docs/x", "/docs/pic.png"),
            "/docs/a": page("/docs/d"),
            "/docs/d": page("/docs/e"),
        }
    )
    crawler.start(crawl={"depth": 2, "include": ["/docs/*"], "exclude": ["*/old/*"]})
    crawler.run()
    assert crawler.visited() == ["/", "/docs/a", "/docs/d"]


def test_a_crawl_has_at_most_so_many_pages(crawler: Crawler) -> None:
    crawler.serve({"/": page(*(f"/{at}" for at in range(20))), **{f"/{at}": page() for at in range(20)}})
    crawler.start(crawl={"max_pages": 5})
    crawler.run()
    assert crawler.visited() == ["/", "/0", "/1", "/2", "/3"]


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_results_does_not_decide_which_pages_a_crawl_has(crawler: Crawler, seed: int) -> None:
    """/d is two links away, and five by another way; from there the last page is one more."""
    crawler.serve(
        {
            "/": page("/a1", "/b1"),
            "/a1": page("/d"),
            **{f"/b{at}": page(f"/b{at + 1}") for at in range(1, 4)},
            "/b4": page("/d"),
            "/d": page("/e"),
            "/e": page("/f"),
            "/f": page("/too-deep"),
        }
    )
    crawler.start(crawl={"depth": 4})
    crawler.run(random.Random(seed))
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/b3", "/b4", "/d", "/e", "/f"]


def test_a_page_that_is_found_again_nearer_is_followed_again(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a1", "/b1"), "/a1": page("/d"), "/b1": page("/b2"), "/b2": page("/d")})
    crawler.serve({"/d": page("/e"), "/e": page()})
    crawler.start(crawl={"depth": 3})
    crawler.step(crawler.queue.popleft())
    held = [row for row in crawler.queue if _path(row) == "/a1"]
    crawler.queue = deque(row for row in crawler.queue if row not in held)
    crawler.run()
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/d"]
    crawler.queue.extend(held)
    crawler.run()
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/d", "/e"]


def _path(row: OutboxRow) -> str:
    return read(ScrapeTask, row.payload).url.removeprefix(SITE) if row.stage == "scraping" else ""


def test_copies_of_a_result_add_nothing(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a"), "/a": page()})
    crawler.start()
    (result,) = crawler.step(crawler.queue.popleft())
    crawler.take(result, result)
    crawler.run()
    assert crawler.visited() == ["/", "/a"]


@pytest.mark.parametrize("etag", [None, '"1"'])
def test_an_unchanged_site_is_crawled_again_without_work(crawler: Crawler, etag: str | None) -> None:
    pages = {"/": page("/a", "/b"), "/a": page("/c"), "/b": page(), "/c": page("/")}
    crawler.serve(pages, etag)
    crawler.start()
    crawler.run()
    assert crawler.cycle.puts() > 0
    crawler.start()
    jobs = crawler.run()
    assert crawler.visited() == ["/", "/a", "/b", "/c"]
    assert {(job.status, job.unchanged) for job in jobs} == {(JobStatus.DONE, True)}
    assert crawler.cycle.puts() == 0


def test_a_page_that_was_indexed_without_its_links_is_read_again(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a"), "/a": page()}, '"1"')
    crawler.cycle.index(HOME)
    crawler.start()
    crawler.run()
    assert crawler.visited() == ["/", "/a"]


def test_a_page_that_is_not_indexed_leads_on(crawler: Crawler) -> None:
    noindex = '<meta name="robots" content="noindex"><main><a href="/c">words</a></main>'
    crawler.serve({"/": "<nav><a href='/a'>x</a></nav>", "/a": noindex, "/c": page()})
    crawler.start()
    jobs = crawler.run()
    assert crawler.visited() == ["/", "/a", "/c"]
    codes = sorted(job.error.code for job in jobs if job.error is not None)
    assert codes == ["empty_content", "robots_noindex"]


@pytest.mark.parametrize("rule", ["nofollow", "none", "noindex, nofollow"])
def test_links_that_must_not_be_followed_are_not(crawler: Crawler, rule: str) -> None:
    crawler.serve({"/": page("/a") + '<a rel="nofollow" href="/no">x</a>'})
    crawler.serve({"/a": f'<meta name="robots" content="{rule}">{page("/no")}'})
    crawler.start()
    crawler.run()
    assert crawler.visited() == ["/", "/a"]


def test_a_document_with_a_job_in_flight_gets_one_of_the_crawl(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a"), "/a": page("/b"), "/b": page()})
    crawler.cycle.submit(url=f"{SITE}/a")
    crawler.cycle.submit(url=HOME)
    crawler.start()
    crawler.run()
    assert crawler.visited() == ["/", "/a", "/b"]


def sitemap(*paths: str) -> str:
    entries = "".join(f"<url><loc>{SITE}{path}</loc></url>" for path in paths)
    return f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</urlset>'


def test_a_sitemap_becomes_a_job_for_each_of_its_pages(crawler: Crawler) -> None:
    crawler.serve(
        {"/sitemap.xml": sitemap("/a", "/b", "/c/x"), "/a": page("/z"), "/b": page(), "/c/x": page()}
    )
    first = crawler.start(f"{SITE}/sitemap.xml", kind="sitemap", crawl={"exclude": ["/c/*"]})
    jobs = crawler.run()
    assert crawler.visited() == ["/a", "/b", "/sitemap.xml"]
    assert {job.status for job in jobs} == {JobStatus.DONE}
    (read_first,) = [job for job in jobs if job.job_id == first]
    assert (read_first.kind, read_first.chunk_count) == ("sitemap", 0)
    crawler.start(f"{SITE}/sitemap.xml", kind="sitemap")
    assert {job.unchanged for job in crawler.run() if job.url != f"{SITE}/c/x"} == {True, None}


def test_a_sitemap_that_cannot_be_read_fails_its_job(crawler: Crawler) -> None:
    crawler.serve({"/sitemap.xml": "<html>Not here</html>"})
    crawler.start(f"{SITE}/sitemap.xml", kind="sitemap")
    (job,) = crawler.run()
    assert job.error is not None
    assert job.error.code == "parse_error"


def test_a_sitemap_that_names_others_has_a_job_for_each(crawler: Crawler) -> None:
    def index(*paths: str) -> str:
        entries = "".join(f"<sitemap><loc>{SITE}{path}</loc></sitemap>" for path in paths)
        return f"<sitemapindex>{entries}</sitemapindex>"

    crawler.serve({"/0.xml": index("/1.xml", "/2.xml", "/missing.xml"), "/1.xml": sitemap("/a", "/b")})
    crawler.serve({"/2.xml": index("/0.xml", "/3.xml"), "/3.xml": index("/4.xml"), "/4.xml": sitemap("/z")})
    crawler.serve({"/a": page(), "/b": page()})
    crawler.start(f"{SITE}/0.xml", kind="sitemap", crawl={"exclude": ["/b"]})
    jobs = crawler.run()
    assert crawler.visited() == ["/0.xml", "/1.xml", "/2.xml", "/3.xml", "/a", "/missing.xml"]
    assert {job.url.removeprefix(SITE) for job in jobs if job.kind == "sitemap"} == {
        *("/0.xml", "/1.xml", "/2.xml", "/3.xml", "/missing.xml")
    }
    assert [job.url for job in jobs if job.status is JobStatus.FAILED] == [f"{SITE}/missing.xml"]


def test_a_crawl_belongs_to_where_its_first_page_redirects(crawler: Crawler) -> None:
    www = "https://www.example.com"
    crawler.cycle.scraper.fetcher.pages |= {
        HOME: Redirect(f"{www}/"),
        f"{www}/": page(f"{www}/a", "/b", "https://other.example/c"),
        f"{www}/a": page(),
        f"{www}/b": page(),
        f"{SITE}/sitemap.xml": Redirect(f"{www}/sitemap.xml"),
        f"{www}/sitemap.xml": sitemap("/x").replace(SITE, www),
        f"{www}/x": page(),
    }
    crawler.start()
    assert {job.url for job in crawler.run()} == {HOME, f"{www}/a", f"{www}/b"}
    crawler.start(f"{SITE}/sitemap.xml", kind="sitemap")
    assert {job.url for job in crawler.run()} == {f"{SITE}/sitemap.xml", f"{www}/x"}


# What needs lists of batches and quotas, which only Postgres has


@pytest.fixture
def on_postgres(request: pytest.FixtureRequest) -> Iterator[Crawler]:
    with cycle_over("postgres", request) as cycle:
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
    (read_already,) = [row for row in crawler.queue if _path(row) == "/a"]
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
    assert isinstance(store, PostgresJobs)
    store._limits = Limits({"free": Quota(max_active=2)})
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
    assert isinstance(store, PostgresJobs)
    store._limits = Limits(max_pending=150)
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


def test_a_retried_page_is_followed_again(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/": page("/a")})
    crawler.start()
    (missing,) = [job for job in crawler.run() if job.status is JobStatus.FAILED]
    assert missing.url == f"{SITE}/a"
    crawler.serve({"/a": page("/b"), "/b": page()})
    crawler.queue.extend(crawler.cycle.jobs.retry(missing.job_id).outbox)
    crawler.run()
    assert crawler.visited() == ["/", "/a", "/b"]


def test_a_sitemap_is_not_replayed(on_postgres: Crawler) -> None:
    crawler = on_postgres
    crawler.serve({"/sitemap.xml": sitemap()})
    job_id = crawler.start(f"{SITE}/sitemap.xml", kind="sitemap")
    crawler.run()
    with pytest.raises(CallerError) as refused:
        ReplayJobs(crawler.cycle.jobs.store, Sent()).replay(CALLER, job_id, ReplayRequest(), "r")
    assert refused.value.code == "invalid_transition"
