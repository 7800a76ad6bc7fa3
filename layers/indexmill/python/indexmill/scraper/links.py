"""Links of pages and sitemaps, made canonical, and the targets of redirects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from urllib.parse import urljoin

from indexmill.contracts.crawl import host_of
from indexmill.contracts.errors import CallerError, DomainBusy, ErrorCode, PermanentError
from indexmill.platform.security.urls import AllowedHosts, canonical_url
from indexmill.scraper.ports import BeforeHop

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


def redirect_target(url: str, location: str, allowed_hosts: AllowedHosts) -> str:
    """Return the canonical URL that a page redirects to. Raises PermanentError."""
    try:
        target = urljoin(url, location.strip().replace(" ", "%20"))
        return canonical_url(target, allowed_hosts=allowed_hosts)
    except CallerError as error:
        raise PermanentError(error.code, f"The page redirects elsewhere: {error.message}") from error
    except ValueError as error:
        raise PermanentError(ErrorCode.URL_INVALID, "The page redirects to no valid URL") from error


async def enter(before_hop: BeforeHop, url: str, left: int) -> None:
    """Await the permission to follow a redirect; after a wait the next try begins there."""
    try:
        await before_hop(url)
    except DomainBusy as busy:
        busy.resume = f"{left} {url}"
        raise


def other_name(named: str, asked: str, final_url: str, allowed_hosts: AllowedHosts) -> str | None:
    """Return the canonical URL that a page names, if it is of its host and not the one `asked` for."""
    found = canonical_links([named], final_url, allowed_hosts)
    return next((url for url in found if url != asked and host_of(url) == host_of(final_url)), None)
