"""Pages with status 200 and without content: 30 of them, and pages that only look like one."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.unusable import SHORT
from local.site.catalogue import PAGES_DIR
from tests.support.bad_pages import BAD, GOOD, document


def code_of(html: str) -> str | None:
    try:
        extract(RawContent(document(html).encode(), Kind.HTML, "utf-8"))
    except PermanentError as error:
        return error.code
    return None


@pytest.mark.shows("B57")
@pytest.mark.parametrize(("code", "html"), BAD.values(), ids=BAD)
def test_a_page_without_content_has_a_code_of_its_own(code: str, html: str) -> None:
    assert code_of(html) == code


@pytest.mark.parametrize("html", GOOD.values(), ids=GOOD)
def test_a_page_that_looks_like_one_is_read(html: str) -> None:
    assert code_of(html) is None


def test_the_pages_of_the_built_in_site_are_read() -> None:
    pages = {path.name: path.read_bytes() for path in PAGES_DIR.rglob("*.html") if path.name != "empty.html"}
    assert len(pages) > 10
    assert {
        name for name, body in pages.items() if not extract(RawContent(body, Kind.HTML)).markdown
    } == set()


def test_a_long_page_is_not_looked_at() -> None:
    assert code_of(f"<h1>404</h1><p>{'word ' * SHORT}</p>") is None
