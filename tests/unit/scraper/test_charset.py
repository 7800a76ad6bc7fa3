"""From bytes to text."""

from __future__ import annotations

import codecs

import pytest

from indexmill.scraper.extract.text import decode

GERMAN = "Grüße aus Köln, schöne Straße"


@pytest.mark.parametrize(
    ("body", "declared"),
    [
        (GERMAN.encode(), None),
        (GERMAN.encode(), "utf-8"),
        (GERMAN.encode(), "UTF8"),
        (GERMAN.encode("latin-1"), "iso-8859-1"),
        (GERMAN.encode("cp1252"), '"windows-1252"'),
        (codecs.BOM_UTF8 + GERMAN.encode(), "iso-8859-1"),
        (GERMAN.encode("utf-16"), None),
        (codecs.BOM_UTF16_BE + GERMAN.encode("utf-16-be"), "utf-8"),
        (GERMAN.encode(), "us-ascii-nonsense"),
        (GERMAN.encode(), "us-ascii"),
        (GERMAN.encode(), "iso-8859-1"),
        (GERMAN.encode(), "base64"),
        (GERMAN.encode(), "utf-7"),
        (GERMAN.encode(), "utf-16" + "x" * 500),
    ],
)
@pytest.mark.shows("B60")
def test_text_is_read_whatever_the_page_says(body: bytes, declared: str | None) -> None:
    assert decode(body, declared) == GERMAN


@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_a_meta_element_declares_the_charset(quote: str) -> None:
    body = f"<html><meta charset={quote}koi8-r{quote}><p>Привет".encode("koi8-r")
    assert decode(body, None, markup=True).endswith("Привет")


def test_the_old_meta_form_is_understood() -> None:
    meta = '<meta http-equiv="Content-Type" content="text/html; charset=windows-1251">'
    assert decode(f"{meta}Привет".encode("cp1251"), None, markup=True).endswith("Привет")


def test_the_header_wins_over_the_meta_element() -> None:
    body = '<meta charset="utf-8">Grüße'.encode("cp1252")
    assert decode(body, "windows-1252", markup=True).endswith("Grüße")


def test_a_charset_that_does_not_fit_falls_back_to_utf_8() -> None:
    assert decode("日本語のページ".encode(), "shift_jis") == "日本語のページ"


def test_an_undeclared_charset_is_guessed() -> None:
    text = "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 20
    assert decode(text.encode("cp1251"), None) == text


def test_nothing_is_lost_but_the_bytes_that_are_wrong() -> None:
    assert decode(b"before \xff after", "utf-8") == "before \ufffd after"


def test_a_page_full_of_unclosed_meta_tags_is_read_at_once() -> None:
    body = b"<meta " * 100_000
    assert len(decode(body, None, markup=True)) == len(body)
