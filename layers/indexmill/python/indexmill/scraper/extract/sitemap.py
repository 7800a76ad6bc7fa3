"""Sitemaps by the protocol of sitemaps.org: lists of pages or of further sitemaps, as XML or as lines."""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.contracts.identity import MAX_URL_LENGTH

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
