"""Pages with status 200 and without content: 20 of them, and pages that only look like one."""

from __future__ import annotations

import pytest

from indexmill.contracts.errors import PermanentError
from indexmill.scraper.extract.content import Kind, RawContent, extract
from indexmill.scraper.extract.unusable import SHORT
from local.site.catalogue import PAGES_DIR

PASSWORD = '<input type="email" name="u"><input type="password" name="p">'
SCRIPT = '<script src="/static/main.4f2.js"></script>'
BAD = {
    "a form alone": (
        "login_required",
        f"<title>Sign in</title><form>{PASSWORD}<button>Sign in</button></form>",
    ),
    "a form in a page": (
        "login_required",
        f"<title>Acme</title><nav>Home</nav><main><h1>Welcome back</h1><form><label>User</label>{PASSWORD}"
        "<button>Log in</button></form><p>Forgot your password?</p></main>",
    ),
    "a wall": (
        "login_required",
        f"<title>Log in to continue</title><h1>Members only</h1><p>Please log in.</p><form>{PASSWORD}</form>",
    ),
    "german": ("login_required", f"<title>Intranet</title><h1>Anmeldung</h1><form>{PASSWORD}</form>"),
    "french": ("login_required", f"<title>Espace</title><form><legend>Connexion</legend>{PASSWORD}</form>"),
    "spanish": ("login_required", f"<title>Iniciar sesi\u00f3n</title><form>{PASSWORD}</form><p>Ayuda</p>"),
    "single sign-on": (
        "login_required",
        f"<title>SSO</title><h2>Company</h2><form><button>Sign-in</button>{PASSWORD}</form>{SCRIPT}",
    ),
    "404 in the title": ("soft_404", "<title>404 - Acme</title><h1>Oops!</h1><p>Go to the start page.</p>"),
    "404 in the heading": ("soft_404", "<title>Acme</title><h1>404</h1><p>We looked everywhere.</p>"),
    "not found": ("soft_404", "<title>Page not found | Acme</title><p>Try a search.</p>"),
    "does not exist": ("soft_404", "<title>Acme</title><h1>This page does not exist</h1><p>Sorry.</p>"),
    "can't be found": (
        "soft_404",
        "<h1>The page you requested could not be found</h1><p>Check it.</p>",
    ),
    "removed": ("soft_404", "<title>Shop</title><h1>This item is no longer available</h1><p>See others.</p>"),
    "german 404": ("soft_404", "<title>Seite nicht gefunden</title><p>Bitte nutzen Sie die Suche.</p>"),
    "french 404": ("soft_404", "<title>Acme</title><h1>Page introuvable</h1><p>Retour</p>"),
    "react": (
        "needs_javascript",
        f"<title>App</title><noscript>Enable JavaScript to run this app.</noscript>"
        f'<div id="root"></div>{SCRIPT}',
    ),
    "vue": ("needs_javascript", f'<title>App</title><div id="app"></div>{SCRIPT}'),
    "next": ("needs_javascript", f'<title>App</title><div id="__next"></div>{SCRIPT}'),
    "angular": ("needs_javascript", f"<title>App</title><app-root></app-root>{SCRIPT}<p>Loading\u2026</p>"),
    "a notice": ("needs_javascript", f"<title>App</title><p>This site requires JavaScript.</p>{SCRIPT}"),
}
TEXT = "<p>The wheel turns at six knots, and the rye is ground between two stones of sandstone.</p>"
GOOD = {
    "an article about 404": f"<title>HTTP</title><h1>HTTP errors</h1><p>404 means not found.</p>{TEXT}",
    "a help page about logins": f"<title>How to sign in</title><h1>How to sign in</h1>{TEXT}",
    "a login in the header": f"<title>Mill</title><header>{PASSWORD}</header><main>{TEXT * 20}</main>",
    "a registration": f"<title>Order</title><form>{PASSWORD}<button>Order</button></form>{TEXT}",
    "a short page": "<title>Hours</title><p>Open at nine.</p>",
    "a short page with a script": f"<title>Hours</title><p>Open at nine.</p>{SCRIPT}<noscript/>",
    "rendered by a server": f'<title>Hours</title><div id="root">{TEXT}</div>{SCRIPT}',
    "a lost and found": f"<title>Lost and found</title><h1>Found objects</h1>{TEXT}",
    "long, and says not found": f"<title>Not found</title>{TEXT * 20}",
    "about JavaScript": f"<title>Guide</title><h1>Do you need JavaScript?</h1><p>No.</p>{TEXT * 4}{SCRIPT}",
}


def code_of(html: str) -> str | None:
    head = "<title>" + html.partition("<title>")[2].partition("</title>")[0] + "</title>"
    page = f"<!doctype html><html><head>{head}</head><body>{html.rpartition('</title>')[2]}</body></html>"
    try:
        extract(RawContent(page.encode(), Kind.HTML, "utf-8"))
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
