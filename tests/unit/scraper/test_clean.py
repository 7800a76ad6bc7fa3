"""Removal of invisible characters."""
# ruff: noqa: RUF001 - the look-alikes are the point

from __future__ import annotations

import time

import pytest

from indexmill.scraper.extract.text import clean_text, clean_title


@pytest.mark.parametrize(
    ("dirty", "clean"),
    [
        ("a\0b\x07c", "abc"),
        ("a\tb", "a\tb"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\n\n a \t\n\n\n\n\nb  \nc\n\n", "a\n\nb\nc"),
        ("pa\u200bss\u202ed\u2066\ufeff\u00ad", "passd"),
        ("ä\u0085\u2028b", "äb"),
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("tag\U000e0041ged", "tagged"),
        ("lone \ud800", "lone"),
        ("   ", ""),
    ],
)
@pytest.mark.shows("B60")
def test_unseen_characters_and_blanks_go(dirty: str, clean: str) -> None:
    assert clean_text(dirty) == clean


def test_a_title_is_one_short_line() -> None:
    assert clean_title("  A\n title\u202e\u200d of\0 ") == "A title of"
    assert clean_title("x" * 10_000) == "x" * 500
    assert clean_title(" \n\u200b ") is None
    assert clean_title(None) is None


@pytest.mark.parametrize(
    "text", [" " * 1_000_000 + "x", "\n" * 1_000_000, " \n" * 500_000, "x" * 1_000_000, "ä\t\n" * 300_000]
)
@pytest.mark.shows("B60", "B61")
def test_cleaning_takes_linear_time(text: str) -> None:
    started = time.process_time()
    clean_text(text)
    assert time.process_time() - started < 1.0
