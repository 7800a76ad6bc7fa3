"""Reading of a sitemap into the URLs of its pages and of further sitemaps."""

from __future__ import annotations

import asyncio
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from indexmill.contracts.crawl import CrawlRules, Sitemap, host_of
from indexmill.contracts.errors import ErrorCode, failure
from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.platform.security.urls import canonical_url
from indexmill.scraper.links import canonical_links
from indexmill.scraper.rate_limit import PageFetch
from indexmill.scraper.scrape import ScrapeParts, fetched

MAX_URLS: Final = 50_000
"""Of one file, as the protocol has it; further ones are left out."""
_GZIP_START: Final = b"\x1f\x8b"
_GZIP: Final = 31
_MAX_MEMBERS: Final = 256
"""Of one gzip file; the rest is copied for each. Block gzip has one for 64 KiB."""
_MOST_DEPTH: Final = 16
_MOST_ELEMENTS: Final = 1_000_000
"""Twenty for each URL of the largest file."""


@dataclass(frozen=True, slots=True)
class SitemapFile:
    """One file: URLs as they are written, of pages or of sitemaps."""

    pages: tuple[str, ...] = ()
    sitemaps: tuple[str, ...] = ()


def unpacked(body: bytes, max_bytes: int) -> bytes:
    """Return a file without its gzip, whatever its name is; one that has none as it is.

    Raises PermanentError: content_too_large, parse_error.
    """
    if not body.startswith(_GZIP_START):
        return body
    text, rest, members = b"", body, 0
    while rest.startswith(_GZIP_START):
        members += 1
        if members > _MAX_MEMBERS:
            raise failure(ErrorCode.PARSE_ERROR, f"The sitemap has more than {_MAX_MEMBERS} gzip members")
        inflater = zlib.decompressobj(_GZIP)
        try:
            text += inflater.decompress(rest, max_bytes + 1 - len(text))
        except zlib.error as error:
            raise failure(ErrorCode.PARSE_ERROR, "The sitemap is damaged") from error
        if len(text) > max_bytes:
            raise failure(
                ErrorCode.CONTENT_TOO_LARGE, f"Unpacked, the sitemap has more than {max_bytes} bytes"
            )
        if not inflater.eof:
            raise failure(ErrorCode.PARSE_ERROR, "The sitemap is cut off")
        rest = inflater.unused_data
    return text


def read_sitemap_file(body: bytes) -> SitemapFile:
    """Return what a file lists. Raises PermanentError(parse_error), also for XML with a DTD."""
    start = body[:1024].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        return _read_xml(body.lstrip(b"\xef\xbb\xbf \t\r\n"))
    if b"\0" in start:
        raise failure(ErrorCode.PARSE_ERROR, "This is no sitemap")
    lines = (line.decode("utf-8-sig", "replace").strip() for line in islice(io.BytesIO(body), MAX_URLS))
    return SitemapFile(pages=tuple(line for line in lines if line.startswith(("http://", "https://"))))


def _read_xml(body: bytes) -> SitemapFile:
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError

    pages: list[str] = []
    sitemaps: list[str] = []
    try:
        for kind, url in _locations(body):
            (pages if kind == "url" else sitemaps).append(url)
            if len(pages) + len(sitemaps) == MAX_URLS:
                break
    except (ParseError, DefusedXmlException, LookupError, ValueError) as error:
        raise failure(ErrorCode.PARSE_ERROR, "The sitemap's XML is damaged, or has a DTD") from error
    return SitemapFile(tuple(pages), tuple(sitemaps))


def _locations(body: bytes) -> Iterator[tuple[str, str]]:
    """Yield `url` or `sitemap` and the location of each entry; no more than one entry is kept in memory.

    Raises ValueError for another document.
    """
    from defusedxml.ElementTree import iterparse

    root, depth, elements = None, 0, 0
    for event, element in iterparse(io.BytesIO(body), events=("start", "end"), forbid_dtd=True):
        depth += 1 if event == "start" else -1
        elements += event == "start"
        if depth > _MOST_DEPTH or elements > _MOST_ELEMENTS:
            raise ValueError(depth)
        name = element.tag.rpartition("}")[2]
        if root is None:
            if name not in ("urlset", "sitemapindex"):
                raise ValueError(name)
            root = element
        elif event == "end" and depth == 1 and name not in ("url", "sitemap"):
            root.clear()
        elif event == "end" and depth == 1:
            found = next((each for each in element if each.tag.rpartition("}")[2] == "loc"), None)
            text = "" if found is None else (found.text or "").strip()
            if text and len(text) <= MAX_URL_LENGTH:
                yield name, text
            root.clear()


_MAX_SITEMAPS: Final = 50
"""Further ones of one sitemap."""
_MAX_REPORTED_BYTES: Final = 180_000
"""Of the pages' URLs together: they share a message."""


async def read_sitemap(
    url: str, rules: CrawlRules, *, parts: ScrapeParts, fetch: PageFetch
) -> tuple[Sitemap, int]:
    """Return the pages that the sitemap at `url` lists and `rules` admit, and the bytes that were fetched.

    Pages and sitemaps of another host count for nothing, as the protocol says. Raises CallerError (the URL),
    PermanentError and TransientError.
    """
    first = canonical_url(url, allowed_hosts=parts.allowed_hosts)
    file = await fetched(first, None, parts, fetch)
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
