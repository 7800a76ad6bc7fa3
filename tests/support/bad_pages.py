"""Pages with status 200 and nothing to index, and pages that only look like one."""

from __future__ import annotations

from typing import Final

PASSWORD: Final = '<input type="email" name="u"><input type="password" name="p">'
SCRIPT: Final = '<script src="/static/main.4f2.js"></script>'
TEXT: Final = "<p>The wheel turns at six knots, and the rye is ground between two stones of sandstone.</p>"
CHROME: Final = (
    '<header><a href="/">Acme</a><nav><ul><li><a href="/a">Products</a><li><a href="/b">Prices</a></ul></nav>'
    '</header><div class="breadcrumbs">Home / Somewhere</div>{}<footer><p>Acme Inc., since 1903</p><form>'
    '<label>Newsletter <input type="email"></label><button>Subscribe</button></form></footer>'
)
"""What a whole page has around it."""
BAD: Final = {
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
    "an address first": (
        "login_required",
        CHROME.format(
            "<title>Sign in - Acme</title><form><label>E-mail <input type=email autocomplete=username>"
            "</label><button>Continue to sign in</button></form>"
        ),
    ),
    "a login after a notice": (
        "login_required",
        CHROME.format(
            f"<title>Acme</title><main><h1>Your session has expired</h1><p>Please log in again.</p>"
            f"<form>{PASSWORD}<button>Log in</button></form></main>"
        ),
    ),
    "WordPress's": (
        "soft_404",
        CHROME.format(
            "<title>Mill blog</title><main><h1>Oops! That page can\u2019t be found.</h1><p>It looks like "
            "nothing was found at this location. Maybe try a search?</p><ul><li>About<li>Contact</ul></main>"
        ),
    ),
    "couldn't find": (
        "soft_404",
        CHROME.format(
            "<title>Acme</title><main><h1>Sorry, we couldn't find that page</h1><p>Popular: shoes</p></main>"
        ),
    ),
    "gone": ("soft_404", "<title>410 Gone</title><h1>Gone</h1><p>The resource was removed.</p>"),
    "a skeleton": (
        "needs_javascript",
        f'<title>App</title><div id="root"><div class="spinner">Loading\u2026</div></div>{SCRIPT}',
    ),
    "a check of the browser": (
        "needs_javascript",
        "<title>Just a moment...</title><h1>acme.example</h1><p>Verify you are human by doing what is "
        f"below.</p>{SCRIPT}",
    ),
    "a cookie wall": (
        "empty_content",
        "<title>Before you continue</title><div class=wall><h1>Before you continue to Acme</h1><p>We use "
        "cookies and data to deliver our services, and to measure them.</p><button>Accept all</button>"
        "<button>Reject all</button></div>",
    ),
    "a german cookie wall": (
        "empty_content",
        "<title>Acme</title><div><h2>Datenschutz-Einstellungen</h2><p>Wir verwenden Cookies.</p>"
        "<button>Alle akzeptieren</button></div>",
    ),
    "only navigation": ("empty_content", CHROME.format("<title>Acme</title><main></main>")),
}
"""Error code and markup, with the title first."""
GOOD: Final = {
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
    "about a cookie": (
        f"<title>Oat cookies</title><h1>Oat cookies</h1>{TEXT}<p>We use cookies of yesterday.</p>"
        "<button>Print</button>"
    ),
    "a privacy policy": (
        f"<title>Privacy</title><h1>We value your privacy</h1>{TEXT * 3}<form><button>Search</button></form>"
    ),
    "a help page with a newsletter": CHROME.format(
        f"<title>How to log in</title><main><h1>Log in</h1>{TEXT}</main>"
    ),
    "a finder": f"<title>Find a page</title><h1>If you cannot find it, ask the desk</h1>{TEXT}",
    "rendered by a server, and loading": (
        f'<title>H</title><div id="app">{TEXT}<p>Loading more\u2026</p></div>{SCRIPT}'
    ),
}
"""Markup of pages that are read."""


def document(markup: str) -> str:
    """Return the page of some markup that has at most one title."""
    before, start, rest = markup.partition("<title>")
    title, _, after = rest.partition("</title>")
    head = f"<title>{title}</title>" if start else ""
    return f"<!doctype html><html><head>{head}</head><body>{before}{after}</body></html>"
