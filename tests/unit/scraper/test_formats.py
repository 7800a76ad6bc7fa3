"""Documents other than web pages: their words, tables and titles, and what makes one unreadable.

The files are as other programs write them: python-docx 1.2, python-pptx 1.0, openpyxl 3.1, EbookLib 0.20.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract import html
from indexmill.scraper.extract.content import (
    EXTRACTORS,
    Extracted,
    Kind,
    RawContent,
    detect,
    extract,
    is_risky,
)

FILES = Path(__file__).with_name("files")
URL = "https://example.com/download?id=7"
BOMB = b'<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>'


def read(body: bytes, content_type: str = "application/octet-stream", url: str = URL) -> Extracted:
    return extract(RawContent(body, detect(body, content_type, url)))


def repacked(name: str, **parts: bytes | None) -> bytes:
    """Return a file with some parts replaced, or left out."""
    new = io.BytesIO()
    given = {key.replace("__", "/").replace("_xml", ".xml"): part for key, part in parts.items()}
    with zipfile.ZipFile(FILES / name) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as target:
        for part in old.namelist():
            body = given.pop(part, old.read(part))
            if body is not None:
                target.writestr(part, body)
        for part, body in given.items():
            target.writestr(part, body or b"")
    return new.getvalue()


@pytest.mark.shows("B55")
@pytest.mark.parametrize(
    ("name", "kind", "title", "parts"),
    [
        (
            "rules.docx",
            Kind.DOCX,
            "Rules of the mill",
            ["# Opening hours", "Closed on Mondays", "## Prices", "| Adult  | 7 euros |", "- Bring boots"],
        ),
        (
            "wheel.pptx",
            Kind.PPTX,
            "The wheel",
            ["## The wheel", "It turns at six knots.", "## Repairs", "| Year | Part |", "| 1911 | Axle |"],
        ),
        (
            "harvest.xlsx",
            Kind.XLSX,
            "Harvest",
            ["## Tons", "| Year | Rye | When |", "| 1911 | 4.5 | 1911-08-01", "after a gap \\| here"],
        ),
        (
            "year.epub",
            Kind.EPUB,
            "A miller's year",
            ["# Spring", "The ice breaks.", "# Autumn", "The rye comes"],
        ),
    ],
)
def test_a_document_keeps_its_structure_and_order(
    name: str, kind: Kind, title: str, parts: list[str]
) -> None:
    body = (FILES / name).read_bytes()
    found = read(body, "text/html")
    assert detect(body, "", URL) is kind
    assert is_risky(RawContent(body, kind))
    assert found.title == title
    places = [found.markdown.find(part) for part in parts]
    assert -1 not in places, found.markdown
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("kind", "body", "by_html"),
    [
        (Kind.DOCX, (FILES / "rules.docx").read_bytes(), True),
        (Kind.EPUB, (FILES / "year.epub").read_bytes(), True),
        (Kind.XHTML, b"<html><p>a</p></html>", True),
        (
            Kind.XML,
            b"<rss><channel><item><title>t</title><description>a</description></item></channel></rss>",
            True,
        ),
        (Kind.PPTX, (FILES / "wheel.pptx").read_bytes(), False),
        (Kind.JSON, b'{"a": 1}', False),
    ],
)
def test_what_is_read_by_way_of_html_has_its_version(
    monkeypatch: pytest.MonkeyPatch, kind: Kind, body: bytes, by_html: bool
) -> None:
    """Another text of the same HTML is another text of these."""
    read_html, calls = html.read_html, []
    monkeypatch.setattr(
        html, "read_html", lambda *given, **wanted: calls.append(1) or read_html(*given, **wanted)
    )
    extract(RawContent(body, kind))
    assert bool(calls) is by_html
    assert not by_html or EXTRACTORS[kind] == EXTRACTORS[Kind.HTML]


def test_hidden_sheets_are_left_out_and_a_book_has_its_language() -> None:
    assert "secret" not in read((FILES / "harvest.xlsx").read_bytes()).markdown
    assert read((FILES / "year.epub").read_bytes()).language == "en"


def test_a_document_within_another_changes_no_kind() -> None:
    body = repacked("rules.docx", word__embeddings__book=b"...xl/workbook.xml...")
    assert detect(body, Kind.DOCX.value, URL) is Kind.DOCX


@pytest.mark.shows("B58", "B59")
@pytest.mark.parametrize(
    ("kind", "body", "code"),
    [
        (Kind.DOCX, repacked("rules.docx", word__document_xml=BOMB), "parse_error"),
        (Kind.PPTX, repacked("wheel.pptx", ppt__presentation_xml=BOMB), "parse_error"),
        (Kind.XLSX, repacked("harvest.xlsx", xl__workbook_xml=BOMB), "parse_error"),
        (Kind.EPUB, repacked("year.epub", **{"META-INF__container_xml": BOMB}), "parse_error"),
        (Kind.DOCX, repacked("rules.docx", word__media__image=b"\0" * (70 << 20)), "content_too_large"),
        (Kind.DOCX, repacked("rules.docx", word__document_xml=None), "parse_error"),
        (Kind.XLSX, repacked("harvest.xlsx", xl__workbook_xml=b"no xml"), "parse_error"),
        (Kind.DOCX, (FILES / "rules.docx").read_bytes()[:30_000], "parse_error"),
    ],
    ids=["docx DTD", "pptx DTD", "xlsx DTD", "epub DTD", "bomb", "no text", "no xml", "cut"],
)
def test_a_hostile_or_damaged_document_is_refused(kind: Kind, body: bytes, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        extract(RawContent(body, kind))
    assert caught.value.code == code


def test_json_is_a_list_of_its_values() -> None:
    found = read(
        json.dumps({"title": "Otters", "a": [1, {"b": "x\ny"}], "none": None}).encode(), "application/json"
    )
    assert found.title == "Otters"
    assert found.markdown == "- title: Otters\n- a:\n  - 1\n  -\n    - b: x y\n- none: null"


def test_the_delimiter_of_a_table_is_that_of_its_first_line() -> None:
    assert read(b'a;b\n1;"x|y"\n', "text/csv").markdown == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
    assert read(b"a\tb\n1\t2\n", "", "https://example.com/t.tsv").markdown.endswith("| 1 | 2 |")


@pytest.mark.parametrize(
    "feed",
    [
        '<?xml version="1.0" encoding="iso-8859-1"?><rss version="2.0"><channel><title>News</title><item>'
        "<title>M\u00fchle</title><pubDate>Mon</pubDate><description>&lt;p&gt;It &lt;b&gt;turns&lt;/b&gt;"
        "&lt;/p&gt;</description></item></channel></rss>",
        '<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><entry><title>M\u00fchle</title>'
        "<updated>Mon</updated><content type='html'>It &lt;b&gt;turns&lt;/b&gt;</content></entry></feed>",
    ],
    ids=["rss", "atom"],
)
def test_a_feed_is_its_entries(feed: str) -> None:
    found = read(feed.encode("iso-8859-1"), "application/xml")
    assert found == Extracted("## M\u00fchle\n\nMon\n\nIt **turns**", "News", None)


@pytest.mark.shows("B58")
@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (BOMB, "text/xml"),
        (b'<!DOCTYPE x SYSTEM "http://127.0.0.1:1/x.dtd"><x/>', "application/rss+xml"),
        (b"<x><y></x>", "application/xml"),
        (b"{", "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'a,"' + b"x" * 200_000, "text/csv"),
    ],
)
def test_data_that_cannot_be_read_is_refused(body: bytes, content_type: str) -> None:
    with pytest.raises(PermanentError) as caught:
        read(body, content_type)
    assert caught.value.code == "parse_error"


def test_deep_data_grows_no_further_than_its_limit() -> None:
    deep = b"[" * 900 + b'"x"' + b"]" * 900
    assert len(read(deep, "application/json").markdown) < 3_000
