"""Text that browsers show and an HTML parser leaves aside: shadow trees, and noscript without scripts."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from indexmill.contracts.errors import IndexmillError, PermanentError
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Kind, RawContent, Wanted, extract
from indexmill.scraper.extract.markup import with_shadows
from indexmill.scraper.scrape import execute_scrape
from tests.support.scraper import SITE, ScraperHarness
from tests.twins.fetcher import InMemoryRenderer

OPEN = "<template shadowrootmode=open>"
WORDS = "The tides of the week are posted at the lock, and the office is open from six in the morning to ten."
LONG = f"{WORDS} {WORDS} {WORDS}"
SHELL = "<title>App</title><div id=root></div><script src=app.js></script>"


def text_of(html: str, kind: Kind = Kind.HTML, **wanted: bool) -> str:
    return extract(RawContent(html.encode(), kind, wanted=Wanted(**wanted))).markdown


@pytest.mark.parametrize(
    ("html", "text"),
    [
        (f"<x-a>{OPEN}<h1>Tides</h1><p>Text.</p></template></x-a>", "# Tides\n\nText."),
        (f"<div>{OPEN.replace('open', 'CLOSED')}<p>Text.</p></template></div>", "Text."),
        (f"<p>a</p><x-a>{OPEN}<p>Text.</p></template>not shown</x-a><p>b</p>", "a\n\nText.\n\nb"),
        (f"<x-a>{OPEN}<p>S <slot></slot></p></template>light <b>one</b></x-a>", "S light **one**"),
        (
            f"<x-a>{OPEN}<h2><slot name=t>No title</slot></h2><slot></slot></template><p>Body</p>"
            "<span slot=t>Title</span></x-a>",
            "## Title\n\nBody",
        ),
        (f"<x-a>{OPEN}<h2><slot name=t>No title</slot></h2></template>x</x-a>", "## No title"),
        (f"<x-a>{OPEN}<x-b>{OPEN}<p>Deep</p></template></x-b><p>S</p></template></x-a>", "Deep\n\nS"),
        (
            f"<x-a>{OPEN}<p><slot></slot></p></template><x-b>{OPEN}<i>in</i></template></x-b></x-a>",
            "*in*",
        ),
        (f"<x-a>{OPEN}<p>one</p></template>{OPEN}<p>two</p></template></x-a>", "one"),
        (f"<x-a>{OPEN}<p>one</p><template><p>inert</p></template></template></x-a>", "one"),
        (f"<x-a>{OPEN}<style>p {{}}</style><p>no end", "no end"),
        (f"<x-a>{OPEN.replace('>', ' data-x=&quot;&gt;>')}<p>one</p></template></x-a>", "one"),
        ("<x-a><template><p>inert</p></template><p>light</p></x-a>", "light"),
        ("<template shadowrootmode=other><p>inert</p></template><p>light</p>", "light"),
        ("<p>Write &lt;template shadowrootmode=open></p>", "Write \\<template shadowrootmode=open>"),
    ],
)
def test_a_declarative_shadow_tree_is_read_where_its_host_is(html: str, text: str) -> None:
    assert text_of(html) == text


def test_links_title_and_headings_of_a_shadow_tree_count() -> None:
    html = f"<html lang=en><x-a>{OPEN}<main><h1>Tides</h1><p><a href=/b>b</a></p></main></template></x-a>"
    found = extract(RawContent(html.encode(), Kind.HTML, wanted=Wanted(links=True)))
    assert (found.title, found.language, found.links) == ("Tides", "en", ("/b",))


def test_xhtml_has_no_shadow_trees() -> None:
    html = f"<html xmlns='http://www.w3.org/1999/xhtml'><body><div>{OPEN}<p>in</p></template>out</div></body>"
    assert text_of(html.replace("=open", "='open'"), Kind.XHTML) == "out"


@pytest.mark.shows("B61")
@pytest.mark.parametrize(
    "html",
    [
        f"<x-a>{OPEN}" * 3_000,
        f"<x-a>{OPEN}<slot></slot></template>" * 2_000,
        f"<x-a>{OPEN}<slot></slot></template>a</x-a>" * 2_000,
        f"<x-a>{OPEN}{'<slot></slot>' * 4_000}</template>{'<b>x</b>' * 2_000}</x-a>",
        f"<x-a>{OPEN}" + "".join(f"<b c={at}><p>" for at in range(2_600)),
        f"<p>&#xfdd2;0;&#xfdd2;</p><x-a>{OPEN}text</template></x-a>" * 1_000,
    ],
)
def test_shadow_trees_cost_little_and_multiply_nothing(html: str) -> None:
    started = time.process_time()
    assert len(with_shadows(html)) < 4 * len(html)
    assert time.process_time() - started < 3.0


def read(page: str, renderer: InMemoryRenderer | None = None) -> str | None:
    harness = ScraperHarness()
    harness.fetcher.pages[f"{SITE}/a"] = page
    parts = replace(harness.parts(), renderer=renderer)
    fetch = parts.rates.page(2000.0)
    try:
        return asyncio.run(execute_scrape(f"{SITE}/a", None, parts=parts, fetch=fetch)).text
    except IndexmillError as error:
        return error.code


@pytest.mark.parametrize(
    ("page", "text"),
    [
        (f"{SHELL}<noscript><h1>Tides</h1><p>{LONG}</p></noscript>", f"# Tides\n\n{LONG}"),
        (f"<div id=root></div><NOSCRIPT><p>{LONG}</p></NOSCRIPT>", LONG),
        (
            f"{SHELL}<noscript><p>Please enable JavaScript.</p><p>{LONG}</p></noscript>",
            f"Please enable JavaScript.\n\n{LONG}",
        ),
        (f"{SHELL}<noscript><p>{WORDS}</p></noscript>", "needs_javascript"),
        (
            f"{SHELL}<noscript>{'You need to enable JavaScript to see tides. ' * 20}</noscript>",
            "needs_javascript",
        ),
        (f"{SHELL}<noscript>{'Activate scripts to go on!<br>' * 20}</noscript>", "needs_javascript"),
        (f"<div id=root></div><noscript><p>{WORDS}</p></noscript>", "empty_content"),
        (f"<main><p>{WORDS}</p></main><noscript><p>{LONG}</p></noscript>", WORDS),
    ],
)
def test_noscript_is_read_where_a_page_has_nothing_else(page: str, text: str) -> None:
    assert read(f"<!doctype html>{page}") == text


def test_where_there_is_a_renderer_noscript_is_not_read() -> None:
    page = f"<!doctype html>{SHELL}<noscript><p>{LONG}</p></noscript>"
    renderer = InMemoryRenderer(lambda _: "<main><p>What the scripts made.</p></main>")
    assert read(page, renderer) == "What the scripts made."
    assert read(page.replace(SHELL, "<div></div>"), renderer) == "empty_content"


def test_the_process_for_large_pages_knows_the_wish() -> None:
    content = RawContent(f"{SHELL}<noscript>{LONG}</noscript>".encode(), Kind.HTML)
    with pytest.raises(PermanentError, match="script"):
        ProcessIsolation().extract(content, timeout_s=60)
    wished = replace(content, wanted=Wanted(noscript=True))
    assert ProcessIsolation().extract(wished, timeout_s=60).markdown == LONG
