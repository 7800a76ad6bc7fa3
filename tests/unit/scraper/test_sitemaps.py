"""Sitemaps: files of the protocol, hostile ones, and sitemaps of sitemaps."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from indexmill.contracts.crawl import CrawlRules, Sitemap
from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError
from indexmill.scraper.ports import Fetched
from indexmill.scraper.sitemap import MAX_URLS, read_sitemap, read_sitemap_file, unpacked
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.fetcher import Redirect

XMLNS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def urlset(*urls: str) -> str:
    return f"<urlset {XMLNS}>{''.join(f'<url><loc>{url}</loc></url>' for url in urls)}</urlset>"


def index(*urls: str) -> str:
    entries = "".join(f"<sitemap><loc>{url}</loc></sitemap>" for url in urls)
    return f"<sitemapindex {XMLNS}>{entries}</sitemapindex>"


def test_a_file_lists_pages() -> None:
    text = f"""<?xml version="1.0" encoding="UTF-8"?>
        <urlset {XMLNS} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
        <url><lastmod>2026-01-01</lastmod><loc> {SITE}/a?b=1&amp;c=2 </loc>
            <image:image><image:loc>{SITE}/a.png</image:loc></image:image></url>
        <url><loc><![CDATA[{SITE}/b]]></loc></url><url></url></urlset>"""
    assert read_sitemap_file(text.encode()).pages == (f"{SITE}/a?b=1&c=2", f"{SITE}/b")
    assert read_sitemap_file(text.replace("UTF-8", "ISO-8859-1").encode("latin-1")).pages[1] == f"{SITE}/b"
    assert read_sitemap_file(urlset(f"{SITE}/a").replace(f" {XMLNS}", "").encode()).pages == (f"{SITE}/a",)


def test_a_text_has_a_url_on_each_line() -> None:
    body = f"\ufeff{SITE}/a\r\n\r\n  {SITE}/b \nnothing\n"
    assert read_sitemap_file(body.encode()).pages == (f"{SITE}/a", f"{SITE}/b")


@pytest.mark.parametrize(
    "body",
    [
        "<html><body>No sitemap</body></html>",
        "<urlset><url><loc>https://example.com/a</loc>",
        f"<rss>{urlset(SITE)}</rss>",
        "\0\1\2",
        '<?xml version="1.0" encoding="made-up"?><urlset/>',
    ],
)
def test_what_is_no_sitemap_is_refused(body: str) -> None:
    with pytest.raises(PermanentError) as refused:
        read_sitemap_file(body.encode())
    assert refused.value.code == "parse_error"


@pytest.mark.shows("B58")
@pytest.mark.parametrize(
    "dtd",
    [
        '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>',
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/hostname">]>',
        '<!DOCTYPE urlset SYSTEM "http://127.0.0.1/sitemap.dtd">',
    ],
    ids=["entities", "file", "dtd"],
)
def test_a_sitemap_with_a_dtd_is_refused(dtd: str) -> None:
    body = f'<?xml version="1.0"?>{dtd}<urlset><url><loc>https://example.com/&a;</loc></url></urlset>'
    with pytest.raises(PermanentError) as refused:
        read_sitemap_file(body.encode())
    assert refused.value.code == "parse_error"


def test_gzip_is_undone_within_its_bound() -> None:
    body = urlset(f"{SITE}/a").encode()
    assert unpacked(gzip.compress(body), 1_000) == body
    assert unpacked(body, 10) == body
    for wrong, code in (
        (gzip.compress(b"a" * 1_000_000), "content_too_large"),
        (gzip.compress(body)[:-9], "parse_error"),
        (gzip.compress(body)[:20] + b"garbage" * 9, "parse_error"),
        (gzip.compress(b"") * 257, "parse_error"),
    ):
        with pytest.raises(PermanentError) as refused:
            unpacked(wrong, 100_000)
        assert refused.value.code == code


def test_a_file_has_at_most_so_many_urls() -> None:
    entries = "".join(f"<url><loc>{SITE}/{at}</loc></url>" for at in range(MAX_URLS + 10))
    assert len(read_sitemap_file(f"<urlset>{entries}</urlset>".encode()).pages) == MAX_URLS


# What is reported of a sitemap


def found(harness: ScraperHarness, path: str = "/sitemap.xml", **rules: object) -> Sitemap:
    """Return what the sitemap lists."""
    wanted, parts = CrawlRules.model_validate(rules), harness.parts()
    sitemap, _ = asyncio.run(read_sitemap(SITE + path, wanted, parts=parts, fetch=parts.rates.page(2_000.0)))
    return sitemap


def serve(harness: ScraperHarness, pages: dict[str, str | bytes]) -> None:
    for path, text in pages.items():
        body = text.encode() if isinstance(text, str) else text
        harness.fetcher.pages[SITE + path] = Fetched(SITE + path, 200, "application/xml", None, body)


def test_an_index_names_further_sitemaps() -> None:
    harness = ScraperHarness()
    serve(
        harness, {"/sitemap.xml": index(f"{SITE}/1.xml", f"{SITE}/2.xml.gz", "https://other.example/3.xml")}
    )
    sitemap = found(harness)
    assert (sitemap.urls, sitemap.sitemaps) == ([], [f"{SITE}/1.xml", f"{SITE}/2.xml.gz"])
    assert sitemap.complete
    serve(harness, {"/2.xml.gz": gzip.compress(urlset(f"{SITE}/b", f"{SITE}/b#c", f"{SITE}/c").encode())})
    assert found(harness, "/2.xml.gz").urls == [f"{SITE}/b", f"{SITE}/c"]
    serve(harness, {"/many.xml": index(*(f"{SITE}/many-{at}.xml" for at in range(51)))})
    many = found(harness, "/many.xml")
    assert (len(many.sitemaps), many.complete) == (50, False)


def test_what_is_of_another_host_counts_for_nothing() -> None:
    harness = ScraperHarness()
    other = "https://other.example"
    serve(harness, {"/1.xml": urlset(f"{other}/a", f"{SITE}/b", "http://127.0.0.1/c", "javascript:d", "/e")})
    assert found(harness, "/1.xml", same_host=False).urls == [f"{SITE}/b", f"{SITE}/e"]


def test_a_sitemap_may_be_at_another_host_than_it_was_asked_for_at() -> None:
    harness = ScraperHarness()
    www = "https://www.example.com"
    harness.fetcher.pages[f"{SITE}/sitemap.xml"] = Redirect(f"{www}/sitemap.xml")
    harness.fetcher.pages[f"{www}/sitemap.xml"] = urlset(f"{www}/a")
    sitemap = found(harness)
    assert (sitemap.urls, sitemap.final_url) == ([f"{www}/a"], f"{www}/sitemap.xml")


def test_no_more_are_reported_than_a_crawl_may_have() -> None:
    harness = ScraperHarness()
    serve(harness, {"/sitemap.xml": urlset(*(f"{SITE}/{at}" for at in range(20)))})
    sitemap = found(harness, max_pages=4, exclude=["/0"])
    assert sitemap.urls == [f"{SITE}/1", f"{SITE}/2", f"{SITE}/3"]
    assert not sitemap.complete
    long = [f"{SITE}/{'x' * 1_900}{at}" for at in range(200)]
    serve(harness, {"/sitemap.xml": urlset(*long)})
    assert sum(len(url) for url in found(harness, max_pages=1_000).urls) < 200_000


def test_robots_hold_for_sitemaps() -> None:
    harness = ScraperHarness()
    serve(harness, {"/sitemap.xml": urlset(f"{SITE}/a")})
    robots = f"{SITE}/robots.txt"
    rules = b"User-agent: *\nDisallow: /sitemap"
    harness.fetcher.pages[robots] = Fetched(robots, 200, "text/plain", None, rules)
    with pytest.raises(IndexmillError) as refused:
        found(harness)
    assert refused.value.code == "robots_disallowed"


@pytest.mark.shows("B58")
@pytest.mark.parametrize(
    "inside",
    [
        pytest.param("<x>" * 100 + "</x>" * 100, id="deep"),
        pytest.param("<x/>" * 1_000_001, id="many"),
        pytest.param(f"<url>{'<x/>' * 1_000_001}</url>", id="many in one"),
    ],
)
def test_elements_are_bounded(inside: str) -> None:
    with pytest.raises(PermanentError) as caught:
        read_sitemap_file(f"<urlset>{inside}</urlset>".encode())
    assert caught.value.code == ErrorCode.PARSE_ERROR


def test_all_members_of_a_gzip_file_are_read() -> None:
    parts = [b"<urlset><url><loc>https://example.com/a</loc></url>", b"</urlset>"]
    assert unpacked(b"".join(map(gzip.compress, parts)), 1000) == b"".join(parts)
    with pytest.raises(PermanentError) as caught:
        unpacked(b"".join(map(gzip.compress, parts)), 55)
    assert caught.value.code == ErrorCode.CONTENT_TOO_LARGE
