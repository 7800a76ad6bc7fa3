"""Pages with status 200 and without content: 30 of them, and pages that only look like one."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.notices import says_missing
from indexmill.scraper.extract.unusable import SHORT
from local.site.catalogue import PAGES_DIR
from tests.support.bad_pages import BAD, GOOD, document
from tests.support.held_out_pages import held_out_pages
from tests.support.site_pages import site_pages
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
def test_at_least_97_of_100_pages_are_right(readable: bool) -> None:
    held_out = [(page.expected, page.html) for page in held_out_pages()]
    others = [(page.expected, page.html) for page in site_pages()]
    others += [(code, document(html)) for code, html in WALLS.values()]
    others += [(None, document(html)) for html in ORDINARY.values()]
    for pages in (held_out, held_out + others):
        kind = [(expected, html) for expected, html in pages if (expected is None) is readable]
        assert sum(code_of_page(html) == expected for expected, html in kind) >= 0.97 * len(kind)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "404",
            "Error 404",
            "404 \u2013 Non trovato",
            "Not found",
            "Nicht gefunden",
            "Oops! Page not found.",
        ),
        *(
            "A\u00efe ! Cette page est introuvable.",
            "Strona, kt\u00f3rej szukasz, nie zosta\u0142a znaleziona.",
        ),
        "Fehler 404: Die Seite, die Sie suchen, wurde nicht gefunden.",
        "Lo sentimos, no hemos encontrado la p\u00e1gina que buscas",
        "\u304a\u63a2\u3057\u306e\u30da\u30fc\u30b8\u306f\u898b\u3064\u304b\u308a\u307e\u305b\u3093\u3067\u3057\u305f",
        "The page you were looking for doesn\u2019t exist (404)",
    ],
)
def test_a_line_of_words_for_missing_pages_is_a_notice(line: str) -> None:
    assert says_missing(line)


@pytest.mark.parametrize(
    "line",
    [
        *(
            "Peugeot 404",
            "Page 404",
            "Article 404",
            "Error 404 (band)",
            "Page Not Found: a novel",
            "The missing page",
        ),
        *(
            "La p\u00e1gina que no existe",
            "The page that does not exist",
            "Why is my page not found?",
            "Article plus",
        ),
        *(
            "Lost property: item not collected within 30 days",
            "This document is not legal advice",
            "Page 1 of 10",
        ),
        *("Page not found by Google", "", "Oops!", "The page", "Not here", "a, " * 66),
    ],
)
def test_a_line_with_a_subject_of_its_own_is_no_notice(line: str) -> None:
    assert not says_missing(line)


def test_a_form_around_the_whole_page_is_no_login_and_is_read() -> None:
    text = "High water 05:12, 4.1 m and 17:40, 4.3 m. Times are local; add an hour in summer."
    login = '<input name="user"><input type="password"><input type="submit" value="Log in">'
    form = f'<form id="aspnetForm"><div>{login}</div><h1>Tides</h1><p>{text}</p></form>'
    assert text in extract(RawContent(document(form).encode(), Kind.HTML, "utf-8")).markdown


@pytest.mark.parametrize(
    ("html", "code"),
    [
        (
            "<title>Nur einen Moment\u2026</title><h1>Laden</h1><script>window._cf_chl_opt={}</script>",
            "needs_javascript",
        ),
        (
            "<title>Shop</title><p>Please enable JS and disable any ad blocker</p><script></script>",
            "needs_javascript",
        ),
        ("<title>Server Error (500)</title><h1>Server Error (500)</h1>", "empty_content"),
        ("<title>503 Backend fetch failed</title><h1>Error 503 Backend fetch failed</h1>", "empty_content"),
        ("<title>Robot R7</title><h1>Are you a robot person?</h1><p>Two hours a charge.</p>", None),
        (
            "<title>Access denied</title><h1>Access denied</h1><p>The lock says so of unknown cards.</p>",
            None,
        ),
        ("<title>Tides</title><p>Captchas of px and of others.</p><p>They are puzzles.</p>", None),
    ],
)
def test_checks_for_humans_and_failed_servers_are_known_by_their_marks(html: str, code: str | None) -> None:
    assert code_of(html) == code


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
