"""Pages with status 200 and without content: logins, "not found" pages, consent walls, shells for scripts.

Only short pages are looked at, so that ordinary ones cost nothing and a page about logins or 404s is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection
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
_ACCOUNT: Final = "form:has(input[autocomplete*=username], input[name=username], input[name=identifier])"
_LOGIN: Final = re.compile(
    r"\b(log[ -]?in|sign[ -]?in|log[ -]on|anmelden|anmeldung|einloggen|connexion|se connecter"
    r"|iniciar sesi\u00f3n|acceder|accedi|inloggen|logga in)\b",
    re.IGNORECASE,
)
_NOT_FOUND: Final = re.compile(
    r"\b(404|410 gone|(page|site|file|document|article|item) "
    r"(was |is |could |can |does |has |requested |you )*(not|no longer|removed|deleted|moved)\b"
    r"|(page|site|file|document|article|item) (could|ca|does|is|was)n['\u2019]t\b|page can['\u2019]t be found"
    r"|((could|can)(not|n?['\u2019]t| not)|unable to) find (the|that|this|your) "
    r"(page|site|file|document|article|item)"
    r"|not found|doesn['\u2019]t exist|does not exist"
    r"|no longer (exists|available)|seite (wurde )?nicht gefunden|page (non trouv\u00e9e|introuvable)"
    r"|p\u00e1gina no encontrada|pagina non trovata|pagina niet gevonden)",
    re.IGNORECASE,
)
_WANTS_SCRIPTS: Final = re.compile(
    r"\b(enable|requires?|need|activate|turn on|without)\b[^.]{0,40}javascript", re.IGNORECASE
)
_CHALLENGE: Final = re.compile(
    r"\b(verify (that )?you are (a )?human|checking your browser|are you a robot|just a moment\.\.\.)",
    re.IGNORECASE,
)
_LOADING: Final = re.compile(r"\W*(loading|please wait|wird geladen|chargement)\W*", re.IGNORECASE)
_CONSENT: Final = re.compile(
    r"\b(before you continue|(we value|we respect|about) your privacy|your privacy|cookies?"
    r"|privatsph\u00e4re|datenschutz-?einstellungen|vie priv\u00e9e)\b",
    re.IGNORECASE,
)
_AGREE: Final = re.compile(
    r"\s*((i )?(accept|agree|consent|allow)|(alle )?(akzeptieren|zustimmen)|(tout )?accepter|aceptar"
    r"|accetta)\b",
    re.IGNORECASE,
)
_MOUNTS: Final = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [ng-app], [data-reactroot], #svelte"


def reason(html: str, title: str | None, markdown: str, accept: Collection[str] = ()) -> ErrorCode | None:
    """Return why the page has nothing to index; None for a page like any other.

    `title` and `markdown` are what was read from `html`; the Markdown may be "". The codes `accept` are no
    reason.
    """
    if len(markdown) > SHORT:
        return None
    tree = LexborHTMLParser(defused(html))
    head = f"{title or ''}\n{_text(tree, 'h1')}"
    # The labels of forms and buttons are not in the Markdown.
    labels = _text(tree, "form, button, label, legend") if tree.css_first(_PASSWORD) is not None else None
    if labels is None and len(markdown) <= _SHELL:
        labels = _text(tree, _ACCOUNT) or None
    if labels is not None and ErrorCode.LOGIN_REQUIRED not in accept and _LOGIN.search(f"{head}\n{labels}"):
        return ErrorCode.LOGIN_REQUIRED
    if ErrorCode.SOFT_404 not in accept and _NOT_FOUND.search(head):
        return ErrorCode.SOFT_404
    short = len(markdown) <= _SHELL
    if short and tree.css_first("script") is not None and _is_shell(tree, f"{head}\n{markdown}"):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and _CONSENT.search(f"{head}\n{_text(tree, 'h2')}") and _agrees(tree):
        return ErrorCode.EMPTY_CONTENT
    return None


def _is_shell(tree: LexborHTMLParser, text: str) -> bool:
    mount = tree.css_first(_MOUNTS)
    inside = mount.text(strip=True) if mount is not None else None
    if inside is not None and (not inside or _LOADING.fullmatch(inside)):
        return True
    if _CHALLENGE.search(text):
        return True
    return _WANTS_SCRIPTS.search(f"{text}\n{_text(tree, 'noscript')}") is not None


def _agrees(tree: LexborHTMLParser) -> bool:
    return any(
        _AGREE.match(each.text()[:_LOOKED_AT]) for each in tree.css("button, a[role=button]")[:_PLACES]
    )


def _text(tree: LexborHTMLParser, selector: str) -> str:
    return "\n".join(each.text(separator=" ")[:_LOOKED_AT] for each in tree.css(selector)[:_PLACES])
