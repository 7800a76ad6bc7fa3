"""Reading of a sitemap into the URLs of its pages and of further sitemaps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from indexmill.contracts.crawl import CrawlRules, host_of
from indexmill.contracts.messages import Sitemap
from indexmill.platform.security.urls import canonical_url
from indexmill.scraper.extract.sitemap import read_sitemap_file, unpacked
from indexmill.scraper.links import canonical_links
from indexmill.scraper.pace import Visit
from indexmill.scraper.scrape import ScrapeParts, visited

_MAX_SITEMAPS: Final = 50
"""Further ones of one sitemap."""
_MAX_REPORTED_BYTES: Final = 180_000
"""Of the pages' URLs together: they share a message."""


async def read_sitemap(
    url: str, rules: CrawlRules, *, parts: ScrapeParts, visit: Visit
) -> tuple[Sitemap, int]:
    """Return the pages that the sitemap at `url` lists and `rules` admit, and the bytes that were fetched.

    Pages and sitemaps of another host count for nothing, as the protocol says. Raises CallerError (the URL),
    PermanentError and TransientError.
    """
    first = canonical_url(url, allowed_hosts=parts.allowed_hosts)
    file = await visited(first, None, parts, visit)
    own = rules.model_copy(update={"same_host": True})
    hosts = {host_of(first), host_of(file.final_url)}

    def read() -> Sitemap:
        listed = read_sitemap_file(unpacked(file.body, parts.max_content_bytes))
        pages = _canonical(listed.pages, file.final_url, parts)
        further = [
            each for each in _canonical(listed.sitemaps, file.final_url, parts) if host_of(each) in hosts
        ]
        return _sitemap([each for each in pages if own.admit(each, hosts)], further, own, file.final_url)

    return await asyncio.to_thread(read), len(file.body)


def _sitemap(pages: list[str], further: list[str], rules: CrawlRules, final_url: str) -> Sitemap:
    """Return what is reported of a sitemap: what its crawl may have, and what fits a message."""
    most, size = 0, 0
    for page in pages[: rules.max_pages - 1]:
        size += len(page) + 3
        if size > _MAX_REPORTED_BYTES:
            break
        most += 1
    return Sitemap(
        urls=pages[:most],
        sitemaps=further[:_MAX_SITEMAPS],
        final_url=final_url,
        complete=len(pages) == most and len(further) <= _MAX_SITEMAPS,
    )


def _canonical(urls: Iterable[str], base: str, parts: ScrapeParts) -> list[str]:
    return canonical_links(urls, base, parts.allowed_hosts, most_bytes=parts.max_content_bytes)
