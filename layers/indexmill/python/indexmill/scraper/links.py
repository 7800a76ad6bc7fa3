"""Links of pages and sitemaps in the form in which they are reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin

from indexmill.contracts.errors import CallerError
from indexmill.platform.security.urls import AllowedHosts, canonical_url

MOST_BYTES: Final = 100_000
"""Of all links of a page together: they share a message with its text."""


def canonical_links(
    links: Iterable[str], base: str, allowed_hosts: AllowedHosts, most_bytes: int = MOST_BYTES
) -> list[str]:
    """Return those of `links`, relative to `base`, that may be fetched: canonical, each once and in order."""
    found: dict[str, None] = {}
    size = 0
    for link in links:
        try:
            url = canonical_url(urljoin(base, link), allowed_hosts=allowed_hosts)
        except (CallerError, ValueError):
            continue
        if url not in found:
            size += len(url) + 3
            if size > most_bytes:
                break
            found[url] = None
    return list(found)
