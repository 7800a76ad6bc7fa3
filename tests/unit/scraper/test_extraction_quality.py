"""Quality of extraction on our own labelled pages; tests.perf.extraction has those of others too."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from indexmill.scraper.extract.content import Kind, RawContent, extract
from tests.support.extraction_quality import (
    PIECES,
    Gold,
    Quality,
    Reference,
    below,
    pieces,
    read_gold,
    reference,
    word_f1,
)

PAGES = Path(__file__).parent / "pages"
PAGE = (
    b"<main><h1>A head</h1><p>Some words<b>!</b></p><pre>\n  x = 1\n    y\n</pre>"
    b"<table><tr><th>k</th><td>v w</td></tr></table><p class=no>no</p></main>"
)
GOOD = '# A [head](/x(y) "t")\n\nSome words**!**\n\n```\nx = 1\n  y\n```\n\n| k | v w |\n'


@cache
def quality() -> Quality:
    found = Quality()
    for _, pages in read_gold(PAGES / "gold.yaml").values():
        for gold in pages:
            body = (PAGES / gold.path).read_bytes()
            found.add(gold.path, reference(body, gold), extract(RawContent(body, Kind.HTML)).markdown)
    return found


def test_our_pages_keep_their_content_and_little_else() -> None:
    assert len(quality().f1) == len(list(PAGES.glob("*.html"))) >= 8
    assert below(quality()) == []


def test_every_kind_of_piece_is_expected_in_our_pages() -> None:
    assert all(quality().expected[kind] >= 4 for kind in PIECES)


def gold_of_page() -> Reference:
    return reference(PAGE, Gold("p", "main", remove=".no"))


def test_the_gold_is_the_text_of_its_elements() -> None:
    found = gold_of_page()
    assert found.words == Counter(["a", "head", "some", "words", "x", "1", "y", "k", "v", "w"])
    assert found.headings == (("a", "head"),)
    assert (found.code, found.rows) == (("x = 1\n  y",), (("k", "v", "w"),))
    with pytest.raises(ValueError, match="nothing is article"):
        reference(PAGE, Gold("p", "article"))


def test_a_cell_that_spans_rows_is_in_the_gold_of_each() -> None:
    body = (
        b"<table><tr><th rowspan=2>Port<th colspan=2>Catch<tr><th>2020<th>2021"
        b"<tr><td>Hull<td rowspan=2>7<td>8<tr><td>Goole<td>9</table>"
    )
    found = reference(body, Gold("p", "table"))
    assert found.rows == (
        *(("port", "catch"), ("port", "2020", "2021")),
        *(("hull", "7", "8"), ("goole", "7", "9")),
    )
    assert (found.words["port"], found.words["7"], found.words["hull"]) == (2, 2, 1)


def test_text_above_or_below_the_line_is_a_word_but_for_the_digits_of_a_chemical_formula() -> None:
    body = b"<p>10<sup>8</sup> parts H<sub>2</sub>O, x<sub>max</sub>, 10<sub>2</sub></p>"
    assert sorted(reference(body, Gold("p", "p")).words) == ["10", "2", "8", "h2o", "max", "parts", "x"]


def test_blocks_in_code_are_its_lines() -> None:
    body = b"<pre><span style='display:block'>one</span><span style='display: block'>two\n</span></pre>"
    assert reference(body, Gold("p", "pre")).code == ("one\ntwo",)


def test_text_that_has_it_all_is_perfect() -> None:
    assert word_f1(gold_of_page().words, GOOD) == 1.0
    assert pieces(gold_of_page(), GOOD) == {"headings": (1, 1), "code": (1, 1), "rows": (1, 1)}


@pytest.mark.parametrize(
    ("lost", "instead", "kind"),
    [("# A", "A", "headings"), ("  y", " y", "code"), ("```\nx", "x", "code"), ("| v", "\n| v", "rows")],
)
def test_a_piece_that_became_text_is_lost(lost: str, instead: str, kind: str) -> None:
    text = GOOD.replace(lost, instead)
    assert word_f1(gold_of_page().words, text) == 1.0
    assert pieces(gold_of_page(), text)[kind] == (0, 1)


@pytest.mark.parametrize(
    ("text", "f1"), [("", 0.0), (GOOD + " no no no no", 20 / 24), ("a head some words x", 2 / 3)]
)
def test_words_that_are_missing_or_too_many_count(text: str, f1: float) -> None:
    assert word_f1(gold_of_page().words, text) == pytest.approx(f1)
