"""Analysis of text into index terms."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.embedding.analyzer import analyze, count_terms, term_ids


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("The running CATS of Rome", ["run", "cat", "rome"]),
        ("C++, C# and .NET; not c or net", ["c++", "c#", ".net", "c", "net"]),
        ("ASP.NET max_connections=100", ["asp", "net", "max", "connect", "100"]),
        ("don't “quote” — it\u2019s fine", ["don", "quot", "fine"]),
        ("Café naïve GRÖẞE", ["cafe", "naiv", "gross"]),
        ("全文検索 engine", ["全文", "文検", "検索", "engin"]),
        ("犬", ["犬"]),
        ("поиск Йод", ["поиск", "иод"]),
        ("## Heading\n- item 3.14", ["head", "item", "3", "14"]),
        ("ﬁle \uff26\uff55\uff4c\uff4c", ["file", "full"]),
        ("\0 \ud800 \t", []),
        ("", []),
    ],
)
def test_terms_of(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


def test_words_of_one_stem_share_an_id_and_are_counted() -> None:
    (cat,) = term_ids(analyze("cat"))
    assert count_terms("Cat cats the CAT\u2019s") == {cat: 3}


def test_ids_are_stable_and_have_31_bits() -> None:
    assert term_ids(["search", "c++"]) == [888200103, 1864149058]
    assert all(0 <= number < 2**31 for number in term_ids([f"term{n}" for n in range(1000)]))


def test_accents_do_not_decide_which_path_a_text_takes() -> None:
    plain = "C# max_connections of c++x and .net3 Tom's"
    assert analyze(plain + " é") == [*analyze(plain), "e"]


@given(st.text())
def test_counting_agrees_with_analyzing(text: str) -> None:
    assert count_terms(text) == Counter(term_ids(analyze(text)))


@given(st.text(), st.text())
def test_a_text_contains_what_is_searched_in_it(left: str, right: str) -> None:
    assert set(analyze(left)) <= set(analyze(f"{left}\n\n{right}"))
