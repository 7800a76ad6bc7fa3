"""Pages that are not shown: scripts must run, humans are asked for, a server failed, cookies come first."""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.errors import ErrorCode

_SHELL: Final = 250
"""Characters of Markdown."""
_SOME: Final = 600
_LOOKED_AT: Final = 2_000
"""Characters of a heading or a notice."""
_PLACES: Final = 20
_SERVER_ERROR: Final = re.compile(
    r"(?:http )?(?:error )?(?:5\d\d[\s:\u2013-]*)?(?:internal server error|bad gateway"
    r"|service (?:temporarily )?unavailable"
    r"|gateway time-?out|server error(?: \(500\))?|application error|backend fetch failed)"
    r"|(?:http )?(?:error )?50[0234](?: error)?"
    r"|error establishing a database connection|site en maintenance|an unexpected error occurred",
    re.IGNORECASE,
)
_WANTS_SCRIPTS: Final = re.compile(
    r"\b(enable|requires?|need|activate|turn on|without)\b[^.]{0,40}\b(javascript|JS\b)", re.IGNORECASE
)
_CHALLENGE: Final = re.compile(
    r"\b(verify (that )?you('|\u2019)?( a)?re (a )?(human|not a (ro)?bot)|verifying you are human"
    r"|checking (your|if the site connection is secure|the site connection) ?(browser)?"
    r"|are you a (ro)?bot\?|just a moment\.\.\."
    r"|press (&|and) hold to confirm you are|robot check|pardon our interruption|one more step"
    r"|attention required! \| cloudflare|you have been blocked|incapsula incident id|ddos protection by"
    r"|access denied.{0,400}(reference #|error code 1020|ray id)|human verification"
    r"|complete the (security check|captcha)|enter the characters you see below)",
    re.IGNORECASE | re.DOTALL,
)
_CHALLENGERS: Final = ("_cf_chl_opt", "anubis_challenge", "captcha-delivery.com/c", "px-captcha", "gokuProps")
"""Names in the scripts of such checks, in whatever language they are shown."""
_LOADING: Final = re.compile(r"\W*(loading|please wait|wird geladen|chargement)\W*", re.IGNORECASE)
_CONSENT: Final = re.compile(
    r"\b(before you continue|(we value|we respect|about) your privacy|your privacy|cookies?"
    r"|privatsphäre|datenschutz-?einstellungen|vie privée)\b",
    re.IGNORECASE,
)
_AGREE: Final = re.compile(
    r"\s*((i )?(accept|agree|consent|allow)|(alle )?(akzeptieren|zustimmen)|(tout )?accepter|aceptar"
    r"|accetta)\b",
    re.IGNORECASE,
)
_MOUNTS: Final = "#root, #app, #__next, #__nuxt, #___gatsby, app-root, [ng-app], [data-reactroot], #svelte"


def blocked(
    tree: LexborHTMLParser, html: str, title: str | None, headings: list[str], markdown: str
) -> ErrorCode | None:
    """Return why the page is not shown: scripts, a check for humans, a failed server, consent."""
    head = f"{title or ''}\n{_text(tree, 'h1')}"
    short = len(markdown) <= _SHELL
    challenged = len(markdown) <= _SOME and any(mark in html for mark in _CHALLENGERS)
    if challenged or (len(markdown) <= _SOME and _CHALLENGE.search(f"{head}\n{markdown}")):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and tree.css_first("script") is not None and _is_shell(tree, f"{head}\n{markdown}"):
        return ErrorCode.NEEDS_JAVASCRIPT
    if short and any(_SERVER_ERROR.fullmatch(each.strip(" .!")) for each in headings):
        return ErrorCode.EMPTY_CONTENT
    if short and _CONSENT.search(f"{head}\n{_text(tree, 'h2')}") and _agrees(tree):
        return ErrorCode.EMPTY_CONTENT
    return None


def _is_shell(tree: LexborHTMLParser, text: str) -> bool:
    mount = tree.css_first(_MOUNTS)
    inside = mount.text(strip=True) if mount is not None else None
    if inside is not None and (not inside or _LOADING.fullmatch(inside)):
        return True
    return _WANTS_SCRIPTS.search(f"{text}\n{_text(tree, 'noscript')}") is not None


def _agrees(tree: LexborHTMLParser) -> bool:
    return any(
        _AGREE.match(each.text()[:_LOOKED_AT]) for each in tree.css("button, a[role=button]")[:_PLACES]
    )


def _text(tree: LexborHTMLParser, selector: str) -> str:
    return "\n".join(each.text(separator=" ")[:_LOOKED_AT] for each in tree.css(selector)[:_PLACES])
