"""Every kind of content through one call."""

from __future__ import annotations

import pypdfium2
import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.text import read_markdown, read_text
from tests.unit.scraper.pdf_file import pdf


def test_a_pdf_becomes_its_text() -> None:
    found = extract(RawContent(pdf("First page", "Second page"), Kind.PDF))
    assert found.markdown == "First page\n\nSecond page"
    assert found.title == "First page"
    assert found.page_starts == (0, 12)


@pytest.mark.parametrize(
    "pages",
    [
        ("one",),
        ("", "two", "", "four", ""),
        ("  a  b ", " c", "d.", "e f g"),
        ("same", "same", "same"),
    ],
)
def test_each_page_of_a_pdf_begins_where_its_text_does(pages: tuple[str, ...]) -> None:
    found = extract(RawContent(pdf(*pages), Kind.PDF))
    assert len(found.page_starts) == len(pages)
    ends = [*found.page_starts[1:], len(found.markdown)]
    parts = [found.markdown[start:end] for start, end in zip(found.page_starts, ends, strict=True)]
    assert "".join(parts) == found.markdown
    assert ["".join(part.split()) for part in parts] == ["".join(page.split()) for page in pages]


def test_the_pdf_of_this_test_is_one() -> None:
    document = pypdfium2.PdfDocument(pdf("x"))
    assert len(document) == 1
    document.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"%PDF-1.4 nothing", "parse_error"),
        (pdf(""), "empty_content"),
        (pdf(*["x"] * 2001), "content_too_large"),
    ],
)
def test_a_pdf_that_cannot_be_read_is_refused(body: bytes, code: str) -> None:
    with pytest.raises(PermanentError) as caught:
        extract(RawContent(body, Kind.PDF))
    assert caught.value.code == code


def test_html_in_an_old_charset_is_read() -> None:
    body = "<meta charset=windows-1252><title>Grüße</title><p>Köln".encode("cp1252")
    found = extract(RawContent(body, Kind.HTML))
    assert (found.title, found.markdown) == ("Grüße", "Köln")


@pytest.mark.parametrize("kind", [Kind.HTML, Kind.TEXT, Kind.MARKDOWN])
def test_nothing_left_is_an_error(kind: Kind) -> None:
    with pytest.raises(PermanentError) as caught:
        extract(RawContent("\u200b \u202e\n".encode(), kind))
    assert caught.value.code == "empty_content"


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("intro\n\n# The *head* #\n\nmore", "The *head*"),
        ("```\n# not this\n```\n## but this", "but this"),
        ("no heading\nat all", "no heading"),
        ("#hashtag\ntext", "#hashtag"),
    ],
)
def test_markdown_passes_through_with_its_first_heading(text: str, title: str) -> None:
    assert read_markdown(text) == (text, title)


def test_plain_text_passes_through_with_its_first_line() -> None:
    assert read_text("\ufeff\n A line \nmore\n") == ("A line\nmore", "A line")
    assert read_text("# no heading\n1 < 2 & *x*") == ("# no heading\n1 < 2 & *x*", "# no heading")
