"""HTML that costs more than its size."""

from __future__ import annotations

import time

import pytest

from indexmill.scraper.extract.content import Kind, RawContent, is_risky
from indexmill.scraper.extract.html import read_html
from indexmill.scraper.extract.markup import defused

N = 2_600

HAZARDS = {
    "deep": "<div>" * N + "deep words" + "</div>" * N,
    "deep lists": "<ul><li>" * N + "deep words",
    "reopened": "".join(f"<b c={at}><p>" for at in range(N)) + "deep words",
    "reopened, hidden in attributes": "".join(f'<font a="{at}" b="<"><p>' for at in range(N)) + "deep words",
    "reopened, with slashes": "".join(f"<i/c={at}><p>" for at in range(N)) + "deep words",
    "tables": "<table><tr><td>" * N + "deep words",
    "adopted": "<b><p>" * N + "</b>" * N + "deep words",
    "links": "".join(f"<a href={at}><p>" for at in range(N)) + "deep words",
    "foster parents": "<table>" + "<b>x<div>" * N + "deep words",
    "quotes": "<blockquote>" * N + "deep words",
    "blocks of code": "<div>" * N + "<pre>x" * N + "deep words",
    "blocks in code": "<pre>" + "<ul><li>x" * N + "deep words",
    "backticks": "<div>" * N + "&lt;b` <b>`</b>" * N + "deep words",
    "backslashes": "<p>&lt;b " + "\\" * 200_000 + " deep words",
    "lines of code": "<div class=fragment><div class=line>x" * N + "deep words",
    "tables of code": "<table class=gutter><tr><td>1<td><pre>x" * 1_000 + "deep words",
    "tables of menus": "<table><tr><td><h1>x</h1>" * 390 + "<a href=x>a</a>" * 2_000 + "deep words " * 900,
    "menus": "<div class=menu><a href=x>a</a>" * N + "deep words",
}


@pytest.mark.parametrize("name", HAZARDS)
def test_hostile_nesting_keeps_its_words_and_costs_little(name: str) -> None:
    html = f"<html><body>{HAZARDS[name]}"
    assert not is_risky(RawContent(html.encode(), Kind.HTML))
    started = time.process_time()
    markdown, *_ = read_html(html)
    assert time.process_time() - started < 2.0
    assert "deep words" in markdown


def test_what_has_even_more_tags_is_read_elsewhere() -> None:
    assert is_risky(RawContent(b"<div>" * 200_000, Kind.HTML))
    assert is_risky(RawContent(b"<" * 200_000, Kind.HTML))
    assert not is_risky(RawContent(b"<" * 200_000, Kind.TEXT))


def test_every_pdf_is_read_elsewhere() -> None:
    assert is_risky(RawContent(b"%PDF-1.4", Kind.PDF))


def test_ordinary_pages_come_back_as_they_are() -> None:
    html = '<p>A <code class="x">name</code>.</p>' * 200
    assert defused(html) is html


def test_a_page_full_of_decorated_code_keeps_its_code() -> None:
    html = '<p>A <code class="x y" id=z>name</code> and <CODE\nhidden>that</CODE>.</p>' * 500
    assert defused(html) == "<p>A <code>name</code> and <CODE>that</CODE>.</p>" * 500


@pytest.mark.parametrize(
    "text",
    ["<b " * 30_000, "<b a" * 30_000, '<b a="' * 30_000, "<b " + "a " * 100_000, "<b " + "a=1 " * 50_000],
)
@pytest.mark.shows("B61")
def test_defusing_takes_linear_time(text: str) -> None:
    started = time.process_time()
    defused(text + "<p>" * 1000 + "<b x>" * 1000)
    assert time.process_time() - started < 1.0
