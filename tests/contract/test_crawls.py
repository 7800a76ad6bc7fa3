"""Crawls: a batch grows with the links of its pages. One suite over every store, with the scrape worker."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import replace

import pytest

from indexmill.contracts.job import JobStatus
from indexmill.scraper.ports import Fetched
from tests.support.crawler import HOME, Crawler, page, path_of, sitemap
from tests.support.cycles import cycle_over
from tests.support.scraper import SITE
from tests.twins.fetcher import Redirect


@pytest.fixture
def crawler(database_url: str) -> Iterator[Crawler]:
    with cycle_over(database_url) as cycle:
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
    held = [row for row in crawler.queue if path_of(row) == "/a1"]
    crawler.queue = deque(row for row in crawler.queue if row not in held)
    crawler.run()
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/d"]
    crawler.queue.extend(held)
    crawler.run()
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/d", "/e"]


def test_a_header_that_forbids_to_follow_holds_when_the_page_is_found_again_nearer(crawler: Crawler) -> None:
    crawler.serve({"/": page("/a1", "/b1"), "/a1": page("/d"), "/b1": page("/b2"), "/b2": page("/d")})
    crawler.serve({"/d": page("/e"), "/e": page()})
    pages = crawler.cycle.scraper.fetcher.pages
    last = pages[f"{SITE}/d"]
    assert isinstance(last, Fetched)
    pages[f"{SITE}/d"] = replace(last, robots_tags=("nofollow",))
    crawler.start(crawl={"depth": 3})
    crawler.step(crawler.queue.popleft())
    held = [row for row in crawler.queue if path_of(row) == "/a1"]
    crawler.queue = deque(row for row in crawler.queue if row not in held)
    crawler.run()
    crawler.queue.extend(held)
    crawler.run()
    assert crawler.visited() == ["/", "/a1", "/b1", "/b2", "/d"]


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


@pytest.mark.parametrize("kept", [True, False], ids=["message kept", "message deleted"])
def test_a_retried_sitemap_is_read_by_the_rules_of_its_crawl(crawler: Crawler, kept: bool) -> None:
    crawler.serve({"/0.xml": f"<sitemapindex><sitemap><loc>{SITE}/1.xml</loc></sitemap></sitemapindex>"})
    crawler.start(f"{SITE}/0.xml", kind="sitemap", crawl={"exclude": ["/no"]})
    (missing,) = [job for job in crawler.run() if job.status is JobStatus.FAILED]
    crawler.serve({"/1.xml": sitemap("/a", "/no"), "/a": page("/z")})
    crawler.retry(missing.job_id, kept=kept)
    assert {job.status for job in crawler.run()} == {JobStatus.DONE}
    assert crawler.visited() == ["/0.xml", "/1.xml", "/a"]


@pytest.mark.parametrize("kept", [True, False], ids=["message kept", "message deleted"])
def test_a_retried_page_is_followed(crawler: Crawler, kept: bool) -> None:
    crawler.serve({"/": page("/a")})
    crawler.start()
    (missing,) = [job for job in crawler.run() if job.status is JobStatus.FAILED]
    crawler.serve({"/a": page("/b"), "/b": page()})
    crawler.retry(missing.job_id, kept=kept)
    crawler.run()
    assert crawler.visited() == ["/", "/a", "/b"]


def test_a_page_that_is_read_again_adds_what_is_new(crawler: Crawler) -> None:
    """Its links were followed, although it is not indexed."""
    crawler.serve({"/": page("/a", "/b"), "/b": page(), "/c": page("/", "/d"), "/d": page()})
    crawler.serve({"/a": f'<meta name="robots" content="noindex">{page("/b", "/c")}'})
    crawler.start()
    (unwanted,) = [job for job in crawler.run() if job.status is JobStatus.FAILED]
    known = ["/", "/a", "/b", "/c", "/d"]
    assert crawler.visited() == known
    crawler.retry(unwanted.job_id)
    crawler.run()
    assert crawler.visited() == known
    crawler.serve({"/a": page("/b", "/c", "/new"), "/new": page()})
    crawler.retry(unwanted.job_id)
    assert {job.status for job in crawler.run()} == {JobStatus.DONE}
    assert crawler.visited() == [*known, "/new"]


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


OTHER = "https://other.example"


def test_a_further_sitemap_that_redirects_adds_no_host(crawler: Crawler) -> None:
    entries = "".join(f"<sitemap><loc>{at}.xml</loc></sitemap>" for at in (f"{SITE}/1", f"{OTHER}/2"))
    crawler.cycle.scraper.fetcher.pages |= {
        f"{SITE}/0.xml": f"<sitemapindex>{entries}</sitemapindex>",
        f"{SITE}/1.xml": Redirect(f"{OTHER}/1.xml"),
        f"{OTHER}/1.xml": sitemap("/a"),
    }
    crawler.start(f"{SITE}/0.xml", kind="sitemap")
    first, further = crawler.run()
    assert (first.status, further.error and further.error.code) == (JobStatus.DONE, "other_host")
    assert asked_of(crawler, OTHER) == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_page_that_redirects_to_another_host_is_not_followed_there(crawler: Crawler, kept: bool) -> None:
    crawler.serve({"/": page("/moved", "/within"), "/here": page()})
    crawler.cycle.scraper.fetcher.pages |= {
        f"{SITE}/moved": Redirect(f"{OTHER}/page"),
        f"{SITE}/within": Redirect(f"{SITE}/here"),
        f"{OTHER}/page": page("/more"),
    }
    crawler.start()
    crawler.run()
    (moved,) = [job for job in crawler.jobs() if job.url.endswith("/moved")]
    assert (moved.error and moved.error.code, moved.retryable) == ("other_host", False)
    crawler.retry(moved.job_id, kept=kept)
    crawler.run()
    again = crawler.replay(moved.job_id)
    for job_id in (moved.job_id, again, crawler.replay(again)):
        error = crawler.cycle.jobs.job(job_id).error
        assert error is not None
        assert error.code == "other_host"
    assert [job.url for job in crawler.jobs() if job.status is JobStatus.DONE] == [HOME, f"{SITE}/within"]
    assert asked_of(crawler, OTHER) == []


def test_a_crawl_of_any_host_follows_redirects_anywhere(crawler: Crawler) -> None:
    crawler.serve({"/": page("/moved")})
    moved = {f"{SITE}/moved": Redirect(f"{OTHER}/page"), f"{OTHER}/page": page()}
    crawler.cycle.scraper.fetcher.pages |= moved
    crawler.start(crawl={"same_host": False})
    assert {job.status for job in crawler.run()} == {JobStatus.DONE}


def test_where_the_first_page_redirects_its_pages_may_redirect_too(crawler: Crawler) -> None:
    www = "https://www.example.com"
    crawler.cycle.scraper.fetcher.pages |= {
        HOME: Redirect(f"{www}/"),
        f"{www}/": page(f"{SITE}/a"),
        f"{SITE}/a": Redirect(f"{www}/a"),
        f"{www}/a": page(),
    }
    first = crawler.start()
    assert {job.status for job in crawler.run()} == {JobStatus.DONE}
    assert {job.job_id for job in crawler.jobs() if job.kind == "crawl"} == {first}


def asked_of(crawler: Crawler, site: str) -> list[str]:
    return [url for url in crawler.cycle.scraper.fetcher.requested if url.startswith(site)]
