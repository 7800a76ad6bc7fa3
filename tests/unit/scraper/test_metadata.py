"""Metadata of a web page, and the forms in which a waiting caller gets it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime

import pytest

from indexmill.contracts.content import DetailedDocument, Document, PageMetadata
from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_scraper import ScrapeNowRequest
from indexmill.contracts.messages import stage_result
from indexmill.scraper.api import MAX_ANSWER_TEXT_BYTES, scrape_result
from indexmill.scraper.extract.content import Wanted
from indexmill.scraper.extract.html import read_html
from indexmill.scraper.ports import Fetched
from indexmill.scraper.scrape import execute_scrape
from tests.support.scraper import SITE, ScraperHarness

OF_ALL = Wanted(html=True, details=True)
WHOLE = Wanted(html=True, details=True, whole=True)
HEAD = """<title>The mill</title>
<meta name="description" content="How it&#8203; turns"><meta property="og:description" content="Not this">
<meta name="author" content="Ada"><meta property="og:site_name" content="Mills of Kent">
<meta property="article:published_time" content="2024-05-01T08:00:00Z">
<meta name="last-modified" content="2024-06-02"><link rel="alternate canonical" href="/mill">"""
LINKED = {
    "@graph": [
        {"@type": "WebSite", "name": "x"},
        {
            "@type": "Article",
            "datePublished": "2023-01-02",
            "dateModified": "2023-01-03T04:05:06+02:00",
            "author": [{"name": "Grace"}],
            "publisher": {"name": "The Wind"},
        },
    ]
}


def page(head: str, body: str = "<main><h1>H</h1><p>Words.</p></main>") -> str:
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>'


def linked(data: object) -> str:
    text = data if isinstance(data, str) else json.dumps(data)
    return f'<script type="application/ld+json">{text}</script>'


def said(head: str, body: str = "") -> dict[str, str]:
    return read_html(page(head, body), with_metadata=True).metadata


async def scraped(html: str | Fetched, wanted: Wanted = OF_ALL) -> DetailedDocument:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a/b"] = html
    parts = replace(harness.parts(), wanted=wanted, inline_text_bytes=MAX_ANSWER_TEXT_BYTES)
    document = await execute_scrape(f"{SITE}/a/b", None, parts=parts, fetch=parts.rates.page(2000.0))
    assert isinstance(document, DetailedDocument)
    return document


@pytest.mark.shows("R232")
async def test_a_waiting_caller_gets_what_the_page_says_about_itself() -> None:
    document = await scraped(page(HEAD))
    asked = ScrapeNowRequest(url=SITE, formats=["markdown", "html"], job_id="j")
    answer = scrape_result(document, asked, elapsed_ms=1)
    assert answer.metadata == PageMetadata(
        title="The mill",
        description="How it turns",
        language="en",
        author="Ada",
        site_name="Mills of Kent",
        published="2024-05-01T08:00:00+00:00",
        modified="2024-06-02",
        canonical_url=f"{SITE}/mill",
    )
    assert (answer.markdown, answer.html) == ("# H\n\nWords.", "<main><h1>H</h1><p>Words.</p></main>")


@pytest.mark.shows("R232")
async def test_a_format_that_was_not_asked_for_is_null() -> None:
    document = await scraped(page(HEAD))
    answer = scrape_result(document, ScrapeNowRequest(url=SITE, formats=["html"]), elapsed_ms=1)
    assert (answer.markdown, answer.html is None) == (None, False)
    plain = scrape_result(
        await scraped(page(HEAD), Wanted(details=True)), ScrapeNowRequest(url=SITE), elapsed_ms=1
    )
    assert (plain.markdown, plain.html) == ("# H\n\nWords.", None)


@pytest.mark.shows("R232")
async def test_the_whole_page_has_what_the_main_part_leaves_out() -> None:
    body = (
        "<header>Top</header><nav><a href='/x' onclick='y()'>Menu</a></nav><main><p>Words.</p></main>"
        "<aside>Beside</aside><footer>Imprint</footer><script>no()</script><p hidden>no</p><style>no</style>"
    )
    part, whole = await scraped(page("", body)), await scraped(page("", body), WHOLE)
    assert part.text == "Words."
    assert [line for line in (whole.text or "").split("\n") if line] == [
        *("Top", "Menu", "Words.", "Beside", "Imprint"),
    ]
    assert whole.html is not None
    assert 'href="/x"' in whole.html
    assert "no" not in whole.html


async def test_details_are_in_no_message() -> None:
    document = await scraped(page(HEAD))
    result = stage_result(message_id="m", stage="scraping", status="success", document=document)
    sent = json.loads(result.model_dump_json(by_alias=True))["document"]
    assert sent.keys() == Document.model_fields.keys()


async def test_other_content_has_a_title_and_no_html() -> None:
    document = await scraped(Fetched(f"{SITE}/a/b", 200, "text/plain", "utf-8", b"First line\nSecond"))
    assert (document.html, document.metadata) == (None, PageMetadata(title="First line"))


@pytest.mark.shows("B43")
@pytest.mark.parametrize(
    ("said_url", "url"),
    [
        ("HTTPS://Example.com:443/c#top", f"{SITE}/c"),
        ("//other.example/c", "https://other.example/c"),
        ("?page=2", f"{SITE}/a/b?page=2"),
        ("http://127.0.0.1:9001/2018-06-01/runtime/invocation/next", None),
        ("http://[::1", None),
        ("javascript:alert(1)", None),
        ("file:///etc/passwd", None),
        ("https://user:pw@example.com/", None),
        ("/" + "x" * 3000, None),
        (" ", None),
    ],
)
async def test_a_canonical_url_is_one_that_would_be_fetched(said_url: str, url: str | None) -> None:
    document = await scraped(page(f'<link rel="canonical" href="{said_url}">'))
    assert document.metadata.canonical_url == url


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (linked(LINKED), ("2023-01-02", "2023-01-03T04:05:06+02:00", "Grace", "The Wind")),
        (linked({"datePublished": "2023-01-02", "author": "Ada"}), ("2023-01-02", None, "Ada", None)),
        (linked([{"datePublished": 7}, {"datePublished": "2023-01-02"}]), (None,) * 4),
        (
            '<meta name="date" content="2020-01-01">' + linked(LINKED),
            ("2023-01-02", "2023-01-03T04:05:06+02:00", "Grace", "The Wind"),
        ),
        (linked("{broken"), (None,) * 4),
        (linked("[" * 90_000), (None,) * 4),
        (linked({"datePublished": "2023-01-02", "x": "y" * 100_000}), (None,) * 4),
        ('<meta name="date" content="yesterday">', (None,) * 4),
        ('<meta name="date" content="2024-13-45">', (None,) * 4),
        ('<meta name="date" content="20240501">', ("2024-05-01", None, None, None)),
        (linked({"datePublished": "2023-01-02", "author": "\ud800"}), ("2023-01-02", None, None, None)),
    ],
)
def test_dates_and_names_of_other_sources(head: str, expected: tuple[str | None, ...]) -> None:
    found = said(head)
    assert tuple(found.get(name) for name in ("published", "modified", "author", "site_name")) == expected


def test_microdata_has_dates() -> None:
    body = '<time itemprop="datePublished" datetime="2024-05-01">1 May</time>'
    assert said("", body) == {"published": "2024-05-01"}


def test_metadata_are_short_and_of_the_first_places() -> None:
    found = said('<meta name="description" content="' + "long " * 5_000 + '">')
    assert len(found["description"]) <= 500
    assert said('<meta name="x" content="y">' * 200 + '<meta name="author" content="late">') == {}


async def test_html_counts_for_the_size_of_an_answer() -> None:
    markup = "<p class='" + "x" * 1000 + "'>w</p>"
    document = await scraped(page("", f"<main>{markup * 4_200}</main>"))
    with pytest.raises(CallerError) as caught:
        scrape_result(document, ScrapeNowRequest(url=SITE, formats=["html"]), elapsed_ms=1)
    assert caught.value.code == "response_too_large"
    plain = document.model_copy(update={"html": None})
    assert scrape_result(plain, ScrapeNowRequest(url=SITE), elapsed_ms=1).markdown


@pytest.mark.parametrize(
    ("head", "at"),
    [
        (
            '<meta property="article:published_time" content="2024-05-01T08:00:00+02:00">',
            "2024-05-01T06:00+00:00",
        ),
        ('<meta name="Date" content="2024-05-01">', "2024-05-01T00:00+00:00"),
        ('<meta name="DCTERMS.issued" content="2024-05-01T08:00">', "2024-05-01T08:00+00:00"),
        (linked(LINKED), "2023-01-02T00:00+00:00"),
        ('<meta name="date" content="0001-01-01T00:00:00+09:00">', None),
        ('<meta name="date" content="9999-12-31T23:59:59-09:00">', None),
        ('<meta name="date" content="last week">', None),
        ('<meta property="article:modified_time" content="2024-05-01">', None),
        ("", None),
    ],
)
async def test_a_document_has_the_time_at_which_its_page_was_published(head: str, at: str | None) -> None:
    document = await scraped(page(head), Wanted(details=True))
    assert document.published_at == (at and datetime.fromisoformat(at))
    assert read_html(page(head)).published == document.published_at
