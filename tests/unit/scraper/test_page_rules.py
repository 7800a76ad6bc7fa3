"""A page's own rules: X-Robots-Tag headers and robots meta elements."""

from __future__ import annotations

import pytest

from indexmill.contracts.content import BlobRef, uri_of
from indexmill.contracts.errors import IndexmillError
from indexmill.contracts.messages import Stored
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Kind, RawContent
from indexmill.scraper.ports import Fetched
from indexmill.scraper.revisit import StoredPage
from indexmill.scraper.robots import nofollow_rule, noindex_rule
from indexmill.scraper.scrape import execute_scrape
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.clock import FrozenClock
from tests.twins.state_table import unlimited_pace

AGENT = "IndexmillBot"

FETCH = unlimited_pace(FrozenClock()).page(2000.0)


@pytest.mark.parametrize(
    ("rule", "noindex", "nofollow"),
    [
        ("noindex", True, False),
        ("NoIndex , NoFollow", True, True),
        ("none", True, True),
        ("nofollow", False, True),
        ("all", False, False),
        ("index, follow", False, False),
        ("", False, False),
        ("noindexed", False, False),
        ("indexmillbot: noindex", True, False),
        ("IndexmillBot: nosnippet, none", True, True),
        ("*: noindex", True, False),
        ("otherbot: noindex", False, False),
        ("otherbot: noindex, nofollow", False, False),
        ("otherbot: noindex, indexmillbot: nofollow", False, True),
        ("nofollow, otherbot: noindex", False, True),
        ("unavailable_after: 25 Jun 2010 15:00:00 PST, noindex", True, False),
        ("max-snippet: 20, noindex", True, False),
        ("indexmillbot: max-snippet: 20, noindex", True, False),
    ],
)
def test_a_rule_concerns_everyone_or_one_agent(rule: str, noindex: bool, nofollow: bool) -> None:
    assert (noindex_rule(AGENT, [rule]), nofollow_rule(AGENT, [rule])) == (
        rule if noindex else None,
        rule if nofollow else None,
    )


def page(head: str = "", body: str = "<p>Words.") -> str:
    return f"<!doctype html><html><head>{head}</head><body>{body}</body></html>"


def meta(name: str, content: str) -> str:
    return f'<meta name="{name}" content="{content}">'


REFUSED = {
    "robots": page(meta("robots", "noindex")),
    "upper case": page(meta("ROBOTS", "NOINDEX,FOLLOW")),
    "none": page(meta("robots", "none")),
    "our agent": page(meta("IndexmillBot", "noindex")),
    "the second": page(meta("robots", "follow") + meta("robots", "noarchive, noindex")),
    "in the body": page(body=meta("robots", "noindex") + "<p>Words."),
    "a long page": page(meta("robots", "noindex"), "<p>word " * 30_000),
}
ACCEPTED = {
    "no rule": (page(), False),
    "nofollow": (page(meta("robots", "nofollow")), True),
    "nofollow for us": (page(meta("indexmillbot", "index, nofollow")), True),
    "another agent": (page(meta("otherbot", "none")), False),
    "a description": (page(meta("description", "robots: noindex, nofollow")), False),
    "words of the page": (page(body='<p>Write &lt;meta name="robots" content="noindex"&gt;.'), False),
    "a comment": (page(f"<!-- {meta('robots', 'noindex')} -->"), False),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_page_that_asks_not_to_be_indexed_is_refused_and_not_stored(name: str) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = REFUSED[name]
    with pytest.raises(IndexmillError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert (caught.value.code, caught.value.retryable) == ("robots_noindex", False)
    assert "robots meta element" in caught.value.message
    assert harness.blobs.objects == {}


@pytest.mark.parametrize("name", ACCEPTED)
async def test_a_page_that_may_be_indexed_says_whether_its_links_may_be_followed(name: str) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"], nofollow = ACCEPTED[name]
    document = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert document.nofollow is nofollow


async def test_given_content_is_indexed_whatever_it_says_to_crawlers() -> None:
    harness = ScraperHarness()
    ref = harness.blobs.put(REFUSED["none"].encode(), kind="raw", content_type="text/html")
    url = uri_of("a.html")
    stored = Stored(ref=ref, content_type="text/html", final_url=url)
    document = await execute_scrape(
        url, None, parts=harness.parts(), fetch=FETCH, before=StoredPage(instead=stored)
    )
    assert (document.text, document.nofollow) == ("Words.", True)


async def test_a_new_header_counts_for_a_page_that_did_not_change() -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = page()
    first = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    known = Stored(
        ref=first.raw_ref or BlobRef.of(b"", "raw"),
        content_type=first.content_type,
        charset=first.charset,
        final_url=first.final_url,
        stored_at=harness.clock.now(),
        extractor=first.extractor,
    )
    before = StoredPage(known=known, current=True)
    refused = Fetched(f"{SITE}/a", 200, "text/html", "utf-8", page().encode(), robots_tags=("noindex",))
    harness.fetcher.pages[f"{SITE}/a"] = refused
    with pytest.raises(IndexmillError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH, before=before)
    assert caught.value.code == "robots_noindex"


async def test_a_header_counts_for_every_kind_of_content() -> None:
    harness = ScraperHarness()
    fetched = Fetched(f"{SITE}/a", 200, "text/plain", None, b"Words.", robots_tags=("nofollow", "noindex"))
    harness.fetcher.pages[f"{SITE}/a"] = fetched
    with pytest.raises(IndexmillError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert caught.value.message == 'The page asks not to be indexed (X-Robots-Tag: "noindex")'


def test_rules_come_back_from_the_isolated_process() -> None:
    content = RawContent(page(meta("robots", "NOINDEX") + meta("otherbot", "none")).encode(), Kind.HTML)
    found = ProcessIsolation().extract(content, timeout_s=20.0)
    assert found.robots == ("noindex", "otherbot: none")
