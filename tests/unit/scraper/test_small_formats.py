"""Details of documents: titles that say nothing, dates, notes of speakers, lines of JSON, damaged PDFs."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import datetime

import openpyxl
import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.adapters.process_isolation import ProcessIsolation
from indexmill.scraper.extract.content import Kind, RawContent, detect, extract
from indexmill.scraper.sitemap import read_sitemap_file
from tests.unit.scraper.pdf_file import pdf
from tests.unit.scraper.test_formats import repacked

NOTES = (
    '<p:notes xmlns:p="http://schemas.openxmlformats.org/presentationml/2006/main" '
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><p:sp><p:nvPr>'
    '<p:ph type="sldNum"/></p:nvPr>'
    "<a:p><a:r><a:t>7</a:t></a:r></a:p></p:sp><p:sp><p:nvPr><p:ph type='body'/></p:nvPr><a:p><a:r>"
    "<a:t>Mention the flood.</a:t></a:r></a:p></p:sp></p:notes>"
)
RELATIONS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId9" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/notesSlide" '
    'Target="../notesSlides/notesSlide1.xml"/></Relationships>'
)


def test_a_nul_in_a_page_is_left_out() -> None:
    found = extract(RawContent(b"<html><body><p>one\0 two</p></body></html>", Kind.HTML))
    assert found.markdown in ("one two", "one\ufffd two")


@pytest.mark.parametrize("charset", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("start", ["<html><body>", "<!DOCTYPE html>"])
def test_a_page_in_utf_16_without_a_mark_is_read(charset: str, start: str) -> None:
    body = f"{start}<p>Gr\u00f6\u00dfe 42</p>".encode(charset)
    kind = detect(body, "text/html", "https://example.com/")
    assert extract(RawContent(body, kind)).markdown == "Gr\u00f6\u00dfe 42"


def test_a_table_with_a_table_in_it_is_taken_apart() -> None:
    inner = "<table><tr><th>i<th>j<tr><td>1<td>2</table>"
    page = f"<main><h1>T</h1><table><tr><th>A<th>B<tr><td>x<td>{inner}</table></main>".encode()
    lines = [line for line in extract(RawContent(page, Kind.HTML)).markdown.split("\n") if line]
    assert lines == ["# T", "A", "B", "x", "| i | j |", "| --- | --- |", "| 1 | 2 |"]


def test_lines_of_json_are_a_list() -> None:
    found = extract(RawContent(b'{"a": 1}\n\n{"a": 2}\n', Kind.JSON))
    assert found.markdown == extract(RawContent(b'[{"a": 1}, {"a": 2}]', Kind.JSON)).markdown
    with pytest.raises(PermanentError, match="no JSON"):
        extract(RawContent(b'{"a": 1}\n{"a": ', Kind.JSON))


def test_a_date_of_a_sheet_has_no_time_of_day() -> None:
    book = openpyxl.Workbook()
    days = (datetime.fromisoformat(day) for day in ("2026-11-24T00:00", "2026-11-24T09:30"))
    book.active.append(list(days))
    made = io.BytesIO()
    book.save(made)
    found = extract(RawContent(made.getvalue(), Kind.XLSX))
    assert "| 2026-11-24 | 2026-11-24 09:30:00 |" in found.markdown


def test_notes_of_the_speaker_follow_their_slide() -> None:
    body = repacked(
        "wheel.pptx",
        **{
            "ppt/slides/_rels/slide1.xml.rels": RELATIONS.encode(),
            "ppt/notesSlides/notesSlide1.xml": NOTES.encode(),
        },
    )
    markdown = extract(RawContent(body, Kind.PPTX)).markdown
    assert "Notes: Mention the flood." in markdown
    assert (
        markdown.index("## The wheel") < markdown.index("Mention the flood.") < markdown.index("## Repairs")
    )


@pytest.mark.parametrize("title", ["untitled", "Untitled-1", "(anonymous)", "[No title]"])
def test_a_title_that_a_program_made_up_is_none(title: str) -> None:
    assert extract(RawContent(titled(title), Kind.PDF)).title == "First line"
    assert extract(RawContent(titled("Untitled works of art"), Kind.PDF)).title == "Untitled works of art"


def titled(title: str) -> bytes:
    """Return a PDF with a title; its readers repair the offsets."""
    escaped = title.replace("(", "\\(").replace(")", "\\)")
    return (
        pdf("First line")
        .replace(
            b"/Root 1 0 R>>", f"/Root 1 0 R/Info 90 0 R>>\n90 0 obj<</Title({escaped})>>endobj\n".encode()
        )
        .replace(b"trailer<<", b"90 0 obj<</Title(" + escaped.encode() + b")>>endobj\ntrailer<<")
    )


def test_a_title_of_atom_may_be_html() -> None:
    feed = (
        '<feed xmlns="http://www.w3.org/2005/Atom"><title type="html">A &amp;amp; B</title><entry>'
        '<title type="html">&lt;b&gt;C&lt;/b&gt; &amp;amp; D</title><content>text</content></entry></feed>'
    )
    found = extract(RawContent(feed.encode(), Kind.XML))
    assert (found.title, found.markdown.split("\n")[0]) == ("A & B", "## C & D")


@pytest.mark.parametrize("before", [b"\n", b"\r\n \t", b"\xef\xbb\xbf\n", b"\n\xef\xbb\xbf"])
def test_what_precedes_the_declaration_of_a_sitemap_is_left_out(before: bytes) -> None:
    xml = (
        b'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"><url>'
        b"<loc>https://example.com/a</loc></url></urlset>"
    )
    assert read_sitemap_file(before + xml).pages == ("https://example.com/a",)


def recursive_pages() -> bytes:
    return pdf("words").replace(b"/Kids[4 0 R]", b"/Kids[2 0 R]")


def recursive_content() -> bytes:
    return pdf("words").replace(b"/Contents 5 0 R", b"/Contents [4 0 R]").replace(b"3 0 R>>>>", b"4 0 R>>>>")


def endless_table() -> bytes:
    body = pdf("words")
    start = body.rindex(b"startxref") + 10
    offset = body[start:].split(b"\n")[0]
    return body.replace(b"/Root 1 0 R>>", b"/Root 1 0 R/Prev " + offset + b">>")


def encrypted() -> bytes:
    """Return a PDF that needs a password that is unknown: the digests are not those of the empty one."""
    security = (
        b"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<" + b"4f" * 32 + b">/U<" + b"55" * 32 + b">>>"
        b"/ID[<" + b"ab" * 16 + b"><" + b"ab" * 16 + b">]"
    )
    return pdf("secret words").replace(b"/Root 1 0 R>>", b"/Root 1 0 R" + security + b">>")


@pytest.mark.shows("B59")
def test_an_encrypted_pdf_is_refused_with_its_reason() -> None:
    with pytest.raises(PermanentError, match="protected by a password") as caught:
        ProcessIsolation().extract(RawContent(encrypted(), Kind.PDF), timeout_s=60)
    assert caught.value.code == "parse_error"


@pytest.mark.shows("B59")
@pytest.mark.parametrize("make", [recursive_pages, recursive_content, endless_table])
def test_a_recursive_pdf_ends(make: Callable[[], bytes]) -> None:
    """It is refused, or read as far as it goes; the process that reads it does not run out of time."""
    assert make() != pdf("words")
    outcome = ended(make())
    assert outcome in ("words", "", "parse_error", "empty_content")


def ended(body: bytes) -> str:
    """Return the text of a PDF, or the code of its failure; its time must not have run out."""
    try:
        return ProcessIsolation().extract(RawContent(body, Kind.PDF), timeout_s=60).markdown
    except PermanentError as error:
        return "late" if "too long" in error.message else error.code
