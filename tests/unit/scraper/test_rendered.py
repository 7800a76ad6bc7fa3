"""Pages without text are rendered where there is a renderer, and read after that like any other."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace

import pytest

from indexmill.contracts.errors import IndexmillError, PermanentError, failure
from indexmill.contracts.messages import Stored
from indexmill.scraper.extract.content import EXTRACTORS, Kind
from indexmill.scraper.ports import Fetched, Validators
from indexmill.scraper.rate_limit import JobCanceled
from indexmill.scraper.revisit import StoredPage
from indexmill.scraper.scrape import NotTried, ScrapeParts, execute_scrape
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.clock import FrozenClock
from tests.twins.fetcher import InMemoryRenderer
from tests.twins.state_table import unlimited_pace

SHELL = "<!doctype html><title>App</title><div id=root></div><script src=app.js></script>"
FULL = "<html lang=en><head><title>App</title></head><body><main><h1>H</h1><p>Words.</p></main></body></html>"

FETCH = unlimited_pace(FrozenClock()).page(2000.0)


def shop(
    renderer: InMemoryRenderer | None, page: str | Fetched = SHELL
) -> tuple[ScraperHarness, ScrapeParts]:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = page
    return harness, replace(harness.parts(), renderer=renderer)


class Endless:
    """A renderer that is never finished."""

    def __init__(self) -> None:
        self.begun, self.stopped = asyncio.Event(), False

    async def render(self, page: Fetched, *, deadline: float) -> bytes:
        self.begun.set()
        try:
            await asyncio.sleep(5)
        finally:
            self.stopped = True
        raise AssertionError(page, deadline)


async def code(parts: ScrapeParts) -> str:
    with pytest.raises(IndexmillError) as caught:
        await execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0))
    return caught.value.code


async def test_a_shell_is_read_after_its_scripts_ran() -> None:
    renderer = InMemoryRenderer(lambda _: FULL)
    page = Fetched(
        f"{SITE}/b", 200, "text/html", "latin-1", SHELL.encode(), validators=Validators('"1"', None, SITE)
    )
    harness, parts = shop(renderer, page)
    document = await execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0))
    assert (document.text, document.title, document.rendered) == ("# H\n\nWords.", "App", True)
    # What is kept, and read again by a retry or a replay, is what the scripts made.
    assert document.raw_ref is not None
    assert harness.blobs.get(document.raw_ref) == FULL.encode()
    assert (document.charset, document.content_sha256) == ("utf-8", hashlib.sha256(FULL.encode()).hexdigest())
    # The site cannot tell by those of the shell whether that changed.
    assert (document.etag, document.last_modified) == (None, None)
    assert [each.final_url for each in renderer.rendered] == [f"{SITE}/b"]
    assert harness.fetcher.requested.count(f"{SITE}/a") == 1


@pytest.mark.parametrize("during", [False, True])
async def test_a_page_of_a_canceled_job_is_rendered_no_further(during: bool) -> None:
    """The requests of its scripts are the job's too."""
    _, parts = shop(InMemoryRenderer(lambda _: FULL))
    renderer, fetch = Endless(), parts.rates.page(2000.0)

    async def canceled() -> bool:
        return parts.rendering.locked() if not during else renderer.begun.is_set()

    fetch.canceled = canceled
    with pytest.raises(JobCanceled):
        await execute_scrape(f"{SITE}/a", "job", parts=replace(parts, renderer=renderer), fetch=fetch)
    assert (renderer.begun.is_set(), renderer.stopped) == (during, during)


async def test_without_a_renderer_a_shell_is_refused() -> None:
    _, parts = shop(None)
    assert await code(parts) == "needs_javascript"


@pytest.mark.parametrize(
    "body", [FULL, "<title>Sign in</title><form><input type=password></form>", "<p></p>"]
)
async def test_no_other_page_is_rendered(body: str) -> None:
    renderer = InMemoryRenderer(lambda _: FULL)
    _, parts = shop(renderer, body)
    if body == FULL:
        document = await execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0))
        assert not document.rendered
    else:
        assert await code(parts) in ("login_required", "empty_content")
    assert renderer.rendered == []


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (SHELL, "empty_content"),
        ("<html><body></body></html>", "empty_content"),
        ("<html><title>Not found</title><h1>404</h1></html>", "soft_404"),
        ("<html><meta name=robots content=noindex><main>Words.</main></html>", "robots_noindex"),
        (failure("render_limit_exceeded"), "render_limit_exceeded"),
        (failure("renderer_unavailable"), "renderer_unavailable"),
    ],
)
async def test_a_rendered_page_is_judged_like_any_other(made: str | Exception, expected: str) -> None:
    harness, parts = shop(InMemoryRenderer(lambda _: made))
    assert await code(parts) == expected
    assert harness.blobs.objects == {}


async def test_one_is_rendered_at_a_time_and_who_waits_too_long_is_not_tried() -> None:
    now = most = 0

    class Slow(InMemoryRenderer):
        async def render(self, page: Fetched, *, deadline: float) -> bytes:
            nonlocal now, most
            now, most = now + 1, max(most, now + 1)
            try:
                await started.wait()
                return await super().render(page, deadline=deadline)
            finally:
                now -= 1

    started = asyncio.Event()
    harness, parts = shop(Slow(lambda _: FULL))
    first = [
        asyncio.create_task(execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0)))
        for _ in "ab"
    ]
    while not now:
        await asyncio.sleep(0)
    with pytest.raises(NotTried):
        await execute_scrape(
            f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(harness.clock.monotonic() + 0.05)
        )
    started.set()
    assert [each.text for each in await asyncio.gather(*first)] == ["# H\n\nWords."] * 2
    assert most == 1


async def test_an_unchanged_shell_says_nothing_of_what_its_scripts_make() -> None:
    _, parts = shop(InMemoryRenderer(lambda _: FULL))
    first = await execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0))
    assert first.raw_ref is not None
    known = Stored(
        ref=first.raw_ref,
        content_type=first.content_type,
        charset=first.charset,
        final_url=first.final_url,
        stored_at=first.raw_stored_at,
        extractor=EXTRACTORS[Kind.HTML],
    )
    before = StoredPage(known, current=True)
    again = await execute_scrape(
        f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0), before=before
    )
    assert (again.unchanged, again.text) == ("same_content", None)
    parts = replace(parts, renderer=InMemoryRenderer(lambda _: FULL.replace("Words", "Others")))
    changed = await execute_scrape(
        f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0), before=before
    )
    assert (changed.unchanged, changed.text) == (None, "# H\n\nOthers.")
    # Kept content needs no browser.
    stored = await execute_scrape(
        f"{SITE}/a",
        None,
        parts=replace(parts, renderer=None),
        fetch=parts.rates.page(2000.0),
        before=StoredPage(instead=known),
    )
    assert stored.text == "# H\n\nWords."


def test_its_errors_have_a_retry_class() -> None:
    assert isinstance(failure("render_limit_exceeded"), PermanentError)
    assert failure("renderer_unavailable").retryable
