"""Refresh of a page to another one: a redirect in its head or in a header."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urljoin

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.errors import PermanentError
from indexmill.platform.security.urls import AllowedHosts
from indexmill.scraper.extract.content import WEB, Kind, RawContent, detect, html_of, is_risky, shown
from indexmill.scraper.extract.html import read_html
from indexmill.scraper.extract.markup import defused
from indexmill.scraper.links import redirect_target
from indexmill.scraper.ports import Fetched

_LONGEST_S: Final = 2
_SHORT: Final = 300
"""Characters; a main part with less is there to be read until the refresh."""
_MAX_LENGTH: Final = 4_096
_VALUE: Final = re.compile(
    r"\s*(?:(\d{1,9})[\d.]*|\.[\d.]*)(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?(\S.*)", re.IGNORECASE | re.DOTALL
)
_HTTP: Final = re.compile(r"https?:", re.IGNORECASE)


def refresh_target(page: Fetched, start: bytes, allowed_hosts: AllowedHosts) -> str | None:
    """Return the canonical URL of the other page that `page` refreshes to before it could be read.

    That is at once, or within two seconds of a page that is short. `start` is the beginning of its body, with
    its head. Raises PermanentError for a URL that must not be fetched.
    """
    try:
        kind = detect(page.body, page.content_type, page.final_url)
    except PermanentError:
        kind = Kind.TEXT
    found = _value(page.refresh or "")
    if found is None and kind in WEB:
        found = _in_head(html_of(RawContent(start, kind, page.charset)))
    if found is None or found[0] > _LONGEST_S:
        return None
    seconds, url = found
    if not _is_http(page.final_url, url) or (seconds and not (kind in WEB and _is_short(page, kind))):
        return None
    target = redirect_target(page.final_url, url, allowed_hosts)
    return None if target == page.final_url else target


def _value(value: str) -> tuple[int, str] | None:
    """Return seconds and URL of a refresh, as browsers read its value; None for one without a URL."""
    found = _VALUE.match(value[:_MAX_LENGTH])
    if found is None:
        return None
    url = found[2].strip()
    if url[0] in "\"'":
        url = url[1:].partition(url[0])[0].strip()
    return (int(found[1] or 0), url) if url else None


def _in_head(start: str) -> tuple[int, str] | None:
    """Return the first refresh of a page's head, not one in noscript; its URL is relative to the page's."""
    tree = LexborHTMLParser(defused(start))
    for node in tree.css("head > meta[http-equiv=refresh i][content]"):
        found = _value(node.attributes.get("content") or "")
        if found is not None:
            base = tree.css_first("head > base[href]")
            href = (base.attributes.get("href") or "").strip() if base is not None else ""
            try:
                return found[0], urljoin(href, found[1])
            except ValueError:
                return None
    return None


def _is_http(base: str, url: str) -> bool:
    try:
        return _HTTP.match(urljoin(base, url)) is not None
    except ValueError:
        return False


def _is_short(page: Fetched, kind: Kind) -> bool:
    """Return whether the main part is short; that of a page too large to be read here counts as long."""
    content = RawContent(page.body, kind, page.charset)
    return not is_risky(content) and len(read_html(shown(content)).markdown) < _SHORT
