"""Links of a page, as it has them."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urldefrag, urljoin

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.scraper.extract.html import defused

MOST: Final = 1_000
"""Links of one page that are looked at: its first ones."""
_LOOKED_AT: Final = 5 * MOST
_NOFOLLOW: Final = 'meta[content*="nofollow" i], meta[name="robots" i][content*="none" i]'
_LEFT_ALONE: Final = frozenset({"nofollow", "ugc", "sponsored"})
_OTHER_SCHEME: Final = re.compile(r"(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def links_of(html: str, *, cautious: bool = False) -> tuple[str, ...]:
    """Return the URLs, without fragments, that a page links to and lets be followed.

    They are relative to its URL, or to its base element where it has one. The rules of its robots meta
    elements are the caller's; `cautious`: a nofollow for any agent counts.
    """
    tree = LexborHTMLParser(defused(html))
    if cautious and tree.css_first(_NOFOLLOW) is not None:
        return ()
    base_node = tree.css_first("base[href]")
    base = (base_node.attributes.get("href") or "").strip() if base_node is not None else ""
    found: dict[str, None] = {}
    for node in tree.css("a[href], area[href]")[:_LOOKED_AT]:
        if not _LEFT_ALONE.isdisjoint((node.attributes.get("rel") or "").lower().split()):
            continue
        link = _link(base, (node.attributes.get("href") or "").strip())
        if link:
            found[link] = None
            if len(found) == MOST:
                break
    return tuple(found)


def _link(base: str, href: str) -> str:
    """Return a link without its fragment; "" for one that leads to no other page."""
    if not href or href.startswith("#") or len(href) > MAX_URL_LENGTH or _OTHER_SCHEME.match(href):
        return ""
    try:
        return urldefrag(urljoin(base, href)).url
    except ValueError:
        return ""
