"""The held-out pages are what the measurements made with them assume."""

from __future__ import annotations

from collections import Counter

from tests.support.held_out_pages import held_out_pages


def test_there_are_as_many_ordinary_pages_as_walls_in_eight_languages() -> None:
    pages = held_out_pages()
    kinds = Counter(page.expected for page in pages)
    assert kinds.keys() == {None, "login_required", "soft_404"}
    assert kinds[None] >= 24
    assert kinds["login_required"] + kinds["soft_404"] >= 24
    for readable in (True, False):
        assert len({page.language for page in pages if (page.expected is None) is readable}) == 8


def test_each_ordinary_page_and_no_wall_has_a_phrase_of_its_text() -> None:
    for page in held_out_pages():
        if page.expected is None:
            assert page.phrase, page.name
            assert page.phrase in page.html, page.name
        else:
            assert page.phrase is None, page.name
