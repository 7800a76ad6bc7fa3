"""Pages with status 200 and without content: 30 of them, and pages that only look like one."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.unusable import SHORT
from local.site.catalogue import PAGES_DIR
from tests.support.bad_pages import BAD, GOOD, document
from tests.support.held_out_pages import held_out_pages
from tests.support.wall_pages import ORDINARY, WALLS


def code_of(html: str) -> str | None:
    return code_of_page(document(html))


def code_of_page(html: str) -> str | None:
    try:
        extract(RawContent(html.encode(), Kind.HTML, "utf-8"))
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


@pytest.mark.parametrize(("code", "html"), WALLS.values(), ids=WALLS)
def test_the_wall_of_a_product_is_known(code: str, html: str) -> None:
    assert code_of(html) == code


@pytest.mark.parametrize("html", ORDINARY.values(), ids=ORDINARY)
def test_a_short_ordinary_page_is_read(html: str) -> None:
    assert code_of(html) is None


@pytest.mark.parametrize("readable", [True, False])
def test_at_most_one_page_written_without_these_rules_is_wrong(readable: bool) -> None:
    pages = [page for page in held_out_pages() if (page.expected is None) is readable]
    right = sum(code_of_page(page.html) == page.expected for page in pages)

    assert right >= len(pages) - 1


@pytest.mark.parametrize(
    "heading",
    [
        "we could not find the page you " + "a" * 160 + "!x",
        "sorry, oops " * 20 + "x",
        "the page you were " * 12,
    ],
)
def test_a_heading_without_end_costs_little(heading: str) -> None:
    assert code_of(f"<title>{heading}</title><h1>{heading}</h1><p>Some words.</p>") is None
