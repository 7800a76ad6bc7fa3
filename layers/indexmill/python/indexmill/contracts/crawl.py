"""Rules of a crawl: decide which pages of a site belong to it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.identity import PlainText

MAX_PAGES: Final = 1_000
MAX_DEPTH: Final = 10
_MAX_PATTERNS: Final = 20
_MAX_PATTERN_LENGTH: Final = 200

CrawlKind = Literal["crawl", "sitemap"]
Pattern = Annotated[PlainText, Field(min_length=1, max_length=_MAX_PATTERN_LENGTH)]
"""`*` matches any characters, everything else itself. One that begins with "/" is compared with path
and query, another one with the whole URL."""

_NO_TEXT: Final = (
    *(".7z", ".avi", ".bmp", ".bz2", ".css", ".dmg", ".eot", ".exe", ".flac", ".gif", ".gz", ".ico"),
    *(".iso", ".jar", ".jpeg", ".jpg", ".js", ".m4a", ".mjs", ".mov", ".mp3", ".mp4", ".ogg", ".png"),
    *(".rar", ".svg", ".tar", ".tgz", ".ttf", ".wav", ".webm", ".webp", ".wmv", ".woff", ".woff2", ".xz"),
    ".zip",
)
"""Ends of paths whose content has no text that is read."""


class CrawlRules(BaseModel):
    """Rules for the pages of a crawl."""

    depth: int = Field(default=3, ge=0, le=MAX_DEPTH)
    """Links from the first page to the last ones; 0 is the first page alone. Pages of a sitemap lead no
    further."""
    include: list[Pattern] = Field(default_factory=list, max_length=_MAX_PATTERNS)
    """Patterns of URLs, of which one must match where there are any; the first page needs none."""
    exclude: list[Pattern] = Field(default_factory=list, max_length=_MAX_PATTERNS)
    """Patterns of URLs that are left out, whatever `include` says."""
    max_pages: int = Field(default=100, ge=1, le=MAX_PAGES)
    """Jobs of the whole crawl, the first page and sitemaps included."""
    same_host: bool = True
    """Only pages of the first page's host and port, or of those that it redirects to."""

    def admit(self, url: str, hosts: Collection[str]) -> bool:
        """Return whether a page with this canonical URL belongs to the crawl of these `hosts`."""
        host, local = _parts(url)
        if self.same_host and host not in hosts:
            return False
        if local.partition("?")[0].lower().endswith(_NO_TEXT):
            return False
        if any(_matches(pattern, url, local) for pattern in self.exclude):
            return False
        return not self.include or any(_matches(pattern, url, local) for pattern in self.include)


class CrawlRequest(CrawlRules):
    """Rules as a caller sends them."""

    model_config = ConfigDict(extra="forbid", strict=True)


def confined(rules: CrawlRules, hosts: Collection[str]) -> list[str] | None:
    """Return the hosts to which pages may redirect, but for the first one; None when that is any."""
    return sorted(hosts) if rules.same_host else None


def host_of(url: str) -> str:
    """Return host and port of a canonical URL as `CrawlRules.admit` compares them."""
    return _parts(url)[0]


def _parts(url: str) -> tuple[str, str]:
    """Return host and port of a canonical URL, and its path with the query."""
    start = url.index("://") + 3
    end = url.index("/", start)
    return url[start:end], url[end:]


def _matches(pattern: str, url: str, local: str) -> bool:
    return _fits(pattern.split("*"), local if pattern.startswith("/") else url)


def _fits(parts: Sequence[str], text: str) -> bool:
    """Return whether `text` is made of `parts` in order, with anything between them.

    Each part is taken where it comes first, so the time is that of a search for each.
    """
    first, *rest = parts
    if not rest:
        return text == first
    *middle, last = rest
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


class Sitemap(BaseModel):
    """Pages that a sitemap lists."""

    urls: list[str]
    """Canonical, those that the task's rules admit, in the sitemap's order."""
    sitemaps: list[str] = []
    """Further ones that it names."""
    final_url: str
    """Where redirects ended."""
    complete: bool = True
    """Whether that is all; no more are reported than the rules allow pages, and than fit a message."""
