"""The canonical URL that a page names: the first in its head, of its own host."""

from __future__ import annotations

import pytest

from indexmill.scraper.scrape import execute_scrape
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.fetcher import InMemoryFetcher, Redirect

BODY = "<body><main><p>The harbour opens at six.</p></main></body></html>"


async def named(head: str, body: str = BODY, final: str = "/a") -> str | None:
    pages: dict[str, str | Redirect] = {f"{SITE}{final}": f"<html><head><title>T</title>{head}</head>{body}"}
    if final != "/a":
        pages[f"{SITE}/a"] = Redirect(f"{SITE}{final}")
    parts = ScraperHarness(InMemoryFetcher(pages)).parts()
    document = await execute_scrape(f"{SITE}/a", None, parts=parts, fetch=parts.rates.page(2000.0))
    return document.canonical_url and document.canonical_url.removeprefix(SITE)


@pytest.mark.parametrize(
    ("href", "path"),
    [
        ("/o", "/o"),
        ("o#part", "/o"),
        ("//example.com/x/../%6f", "/o"),
        ("HTTPS://EXAMPLE.COM/o", "/o"),
        (" /o ", "/o"),
        ("?page=1", "/a?page=1"),
        ("/a", None),
        ("#top", None),
        ("", None),
        ("https://www.example.com/o", None),
        ("https://example.com:8443/o", None),
        ("https://user:pw@example.com/o", None),
        ("javascript:alert(1)", None),
        ("http://[", None),
    ],
)
async def test_a_canonical_url_is_of_the_pages_host(href: str, path: str | None) -> None:
    assert await named(f'<link rel="canonical" href="{href}">') == path


@pytest.mark.parametrize(
    ("head", "path"),
    [
        ("<LINK REL=Canonical HREF=/o>", "/o"),
        ('<link rel="CANONICAL" href="/o">', "/o"),
        ('<link rel="shortlink canonical" href="/o"><link rel="canonical" href="/p">', "/o"),
        ('<base href="/q/"><link rel="canonical" href="../o">', "/o"),
        ('<base href="https://other.example/"><link rel="canonical" href="/o">', None),
        ('<link rel="alternate" href="/o">canonical', None),
        ('<!-- <link rel="canonical" href="/o"> -->', None),
    ],
)
async def test_a_canonical_url_is_the_first_in_the_head(head: str, path: str | None) -> None:
    assert await named(head) == path
    assert await named("", f"<body>{head}{BODY.removeprefix('<body>')}") is None


async def test_a_canonical_url_is_relative_to_the_end_of_redirects() -> None:
    assert await named('<link rel="canonical" href="o">', final="/x/b") == "/x/o"
    assert await named('<link rel="canonical" href="/a">', final="/x/b") is None
