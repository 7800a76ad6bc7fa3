"""One URL becomes a document."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta

import pytest

from indexmill.contracts.content import INLINE_LIMIT_BYTES
from indexmill.contracts.errors import CallerError, PermanentError
from indexmill.contracts.http_scraper import ScrapeNowRequest
from indexmill.contracts.messages import Stored, stage_result
from indexmill.scraper.api import scrape_result
from indexmill.scraper.ports import Fetched
from indexmill.scraper.revisit import StoredPage
from indexmill.scraper.scrape import execute_scrape
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import Redirect
from tests.twins.state_table import unlimited_pace

PAGE = "<html lang=en><title>T</title><main><h1>H</h1><p>Words.</p></main>"

FETCH = unlimited_pace(FrozenClock()).page(2000.0)


async def test_a_page_becomes_a_document() -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = PAGE
    document = await execute_scrape("HTTPS://Example.com:443/a#x", "job", parts=harness.parts(), fetch=FETCH)
    digest = hashlib.sha256(PAGE.encode()).hexdigest()
    assert (document.url, document.final_url) == (f"{SITE}/a", f"{SITE}/a")
    assert (document.title, document.language, document.text) == ("T", "en", "# H\n\nWords.")
    assert (document.content_type, document.content_sha256) == ("text/html", digest)
    assert document.text_ref is None
    assert document.raw_ref is not None
    assert document.raw_ref.key.startswith("raw/")
    assert harness.blobs.get(document.raw_ref) == PAGE.encode()


async def test_robots_are_asked_before_the_page() -> None:
    harness = ScraperHarness()
    harness.fetcher.pages = {f"{SITE}/robots.txt": "User-agent: *\nDisallow: /a", f"{SITE}/a": PAGE}
    with pytest.raises(PermanentError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert caught.value.code == "robots_disallowed"
    assert harness.fetcher.requested == [f"{SITE}/robots.txt"]


async def test_robots_are_asked_before_each_hop() -> None:
    harness = ScraperHarness()
    other = "https://other.example"
    harness.fetcher.pages = {
        f"{SITE}/a": Redirect(f"{other}/b"),
        f"{other}/b": Redirect(f"{other}/private/c"),
        f"{other}/robots.txt": "User-agent: *\nDisallow: /private",
    }
    with pytest.raises(PermanentError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert caught.value.code == "robots_disallowed"
    assert '"Disallow: /private"' in caught.value.message
    asked = [f"{SITE}/robots.txt", f"{SITE}/a", f"{other}/robots.txt", f"{other}/b"]
    assert harness.fetcher.requested == asked


@pytest.mark.parametrize(
    ("body", "charset"),
    [(PAGE.encode(), None), ("<main><p>Größe und Maß.</p></main>".encode("latin-1"), "iso-8859-1")],
)
async def test_stored_content_gives_the_same_document_without_the_site(body: bytes, charset: str) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = Fetched(f"{SITE}/b", 200, "text/html", charset, body)
    first = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert first.raw_ref is not None
    stored = Stored(
        ref=first.raw_ref,
        content_type=first.content_type,
        charset=first.charset,
        final_url=first.final_url,
        fetched_at=first.fetched_at,
    )
    asked = list(harness.fetcher.requested)
    again = await execute_scrape(
        f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH, before=StoredPage(instead=stored)
    )
    assert again == first
    assert harness.fetcher.requested == asked
    harness.blobs.objects.clear()
    fetched = await execute_scrape(
        f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH, before=StoredPage(instead=stored)
    )
    assert (fetched.text, harness.fetcher.requested.count(f"{SITE}/a")) == (first.text, 2)
    assert first.raw_ref.key in harness.blobs.objects
    harness.blobs.objects.clear()
    with pytest.raises(PermanentError) as caught:
        await execute_scrape(
            "upload:a.html", None, parts=harness.parts(), fetch=FETCH, before=StoredPage(instead=stored)
        )
    assert caught.value.code == "content_missing"


@pytest.mark.fault("F64")
@pytest.mark.parametrize(
    ("age", "body", "written"),
    [
        (timedelta(), PAGE, False),
        (timedelta(days=15, seconds=-1), PAGE, False),
        (timedelta(days=15), PAGE, True),
        (timedelta(seconds=-1), PAGE, True),
        (None, PAGE, True),
        (timedelta(), "<p>Other words.", True),
    ],
    ids=["now", "young", "old", "by a fast clock", "of unknown age", "changed"],
)
async def test_known_content_is_written_again_when_it_changed_or_may_be_old(
    age: timedelta | None, body: str, written: bool
) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = body
    now = harness.clock.now()
    known = Stored(
        ref=InMemoryBlobs().put(PAGE.encode(), kind="raw", content_type="text/html"),
        content_type="text/html",
        final_url=f"{SITE}/a",
        stored_at=now - age if age is not None else None,
    )
    document = await execute_scrape(
        f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH, before=StoredPage(known)
    )
    assert document.raw_ref is not None
    assert harness.blobs.puts == ([document.raw_ref.key] if written else [])
    assert document.raw_stored_at == (now if written else known.stored_at)
    assert document.raw_ref.sha256 == hashlib.sha256(body.encode()).hexdigest() == document.content_sha256


async def test_a_private_url_sends_no_request() -> None:
    harness = ScraperHarness()
    with pytest.raises(CallerError):
        await execute_scrape("http://127.0.0.1/", None, parts=harness.parts(), fetch=FETCH)
    assert harness.fetcher.requested == []


@pytest.mark.fault("F26")
@pytest.mark.parametrize("text", ["word " * 20_000, "ä " * 20_000, '"' * 40_000])
async def test_long_text_goes_by_reference(text: str) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = Fetched(f"{SITE}/a", 200, "text/plain", "utf-8", text.encode())
    document = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert document.text is None
    assert document.text_ref is not None
    assert document.text_ref.key.startswith("text/")
    assert harness.blobs.get(document.text_ref).decode() == text.strip()


@pytest.mark.parametrize("text", ["w" * 55_990, "ä" * 27_990, "\n" + '"' * 27_990])
async def test_text_that_just_fits_makes_a_message_that_fits(text: str) -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = Fetched(f"{SITE}/a", 200, "text/plain", "utf-8", text.encode())
    document = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert document.text is not None
    result = stage_result(message_id="m", stage="scraping", status="success", document=document)
    assert 50_000 < len(result.model_dump_json(by_alias=True).encode()) <= INLINE_LIMIT_BYTES
    assert json.loads(result.model_dump_json())["document"]["text"] == text.strip()


async def test_a_page_that_cannot_be_read_leaves_nothing_behind() -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = "<nav>only</nav>"
    with pytest.raises(PermanentError):
        await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    assert harness.blobs.objects == {}


async def test_the_http_answer_shows_the_document() -> None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = PAGE
    document = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    answer = scrape_result(document, ScrapeNowRequest(url=SITE, job_id="j"), elapsed_ms=12)
    assert (answer.markdown, answer.size) == ("# H\n\nWords.", len(PAGE))
    assert (answer.elapsed_ms, answer.job_id) == (12, "j")


async def test_an_answer_that_is_too_long_is_refused() -> None:
    harness = ScraperHarness(inline_text_bytes=5)
    harness.fetcher.pages[f"{SITE}/a"] = PAGE
    document = await execute_scrape(f"{SITE}/a", None, parts=harness.parts(), fetch=FETCH)
    with pytest.raises(CallerError) as caught:
        scrape_result(document, ScrapeNowRequest(url=SITE), elapsed_ms=1)
    assert (caught.value.code, caught.value.http_status) == ("response_too_large", 413)
