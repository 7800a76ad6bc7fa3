"""Pages with status 200 and without content: logins, "not found" pages, shells that a script would fill.

Only short pages are looked at, so that ordinary ones cost nothing and a page about logins or 404s is kept.
"""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.extract.html import defused

SHORT: Final = 1_200
"""Characters of Markdown; longer pages are what they are."""
_SHELL: Final = 250
_LOOKED_AT: Final = 2_000
"""Characters of a heading, a form or a notice."""
_PLACES: Final = 20
_PASSWORD: Final = "input[type=password]"
_LOGIN: Final = re.compile(
    r"\b(log[ -]?in|sign[ -]?in|log[ -]on|anmelden|anmeldung|einloggen|connexion|se connecter"
    r"|iniciar sesi\u00f3n|acceder|accedi|inloggen|logga in)\b",
    re.IGNORECASE,
)
_NOT_FOUND: Final = re.compile(
    r"\b(404|(page|site|file|document|article|item) (was |is |could |can |does |has |requested |you )*"
    r"(not|no longer|n't|removed|deleted|moved)\b|not found|doesn't exist|does not exist"
    r"|no longer (exists|available)|seite (wurde )?nicht gefunden|page (non trouv\u00e9e|introuvable)"
    r"|p\u00e1gina no encontrada|pagina non trovata|pagina niet gevonden)",
    re.IGNORECASE,
)
_WANTS_SCRIPTS: Final = re.compile(
    r"\b(enable|requires?|need|activate|turn on|without)\b[^.]{0,40}javascript", re.IGNORECASE
)
_MOUNTS: Final = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [ng-app], [data-reactroot], #svelte"


def reason(html: str, title: str | None, markdown: str) -> ErrorCode | None:
    """Return why the page has nothing to index; None for a page like any other.

    `title` and `markdown` are what was read from `html`; the Markdown may be "".
    """
    if len(markdown) > SHORT:
        return None
    tree = LexborHTMLParser(defused(html))
    head = f"{title or ''}\n{_text(tree, 'h1')}"
    # The labels of forms and buttons are not in the Markdown.
    labels = _text(tree, "form, button, label, legend") if tree.css_first(_PASSWORD) is not None else None
    if labels is not None and _LOGIN.search(f"{head}\n{labels}"):
        return ErrorCode.LOGIN_REQUIRED
    if _NOT_FOUND.search(head):
        return ErrorCode.SOFT_404
    if len(markdown) <= _SHELL and tree.css_first("script") is not None:
        mount = tree.css_first(_MOUNTS)
        empty = mount is not None and not mount.text(strip=True)
        if empty or _WANTS_SCRIPTS.search(f"{markdown}\n{_text(tree, 'noscript')}"):
            return ErrorCode.NEEDS_JAVASCRIPT
    return None


def _text(tree: LexborHTMLParser, selector: str) -> str:
    return "\n".join(each.text(separator=" ")[:_LOOKED_AT] for each in tree.css(selector)[:_PLACES])
