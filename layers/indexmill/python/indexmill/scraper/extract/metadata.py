"""Metadata of a web page, from its meta elements, microdata and JSON-LD."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from datetime import MAXYEAR, UTC, date, datetime
from typing import Any, Final

from selectolax.lexbor import LexborHTMLParser

from indexmill.contracts.identity import MAX_URL_LENGTH
from indexmill.scraper.extract.text import clean_title

_NAMES: Final = {
    "description": ("description", "og:description", "twitter:description", "dc.description"),
    "author": ("author", "article:author", "dc.creator", "dcterms.creator", "twitter:creator"),
    "site_name": ("og:site_name", "application-name"),
    "published": (
        *("article:published_time", "datepublished", "dcterms.created", "dcterms.issued", "dc.date.issued"),
        *("date", "dc.date", "dcterms.date", "publish-date", "pubdate"),
    ),
    "modified": (
        "article:modified_time",
        "datemodified",
        "og:updated_time",
        "dcterms.modified",
        "last-modified",
    ),
    "canonical_url": ("og:url",),
}
"""Names of meta elements and of microdata in lower case, the best first."""
_DATES: Final = frozenset(("published", "modified"))
_FIRST_YEAR: Final = 1000
_PLACES: Final = "meta[content], [itemprop=datePublished i], [itemprop=dateModified i]"
_MAX_PLACES: Final = 200
_LINKED: Final = 'script[type="application/ld+json" i]'
_MAX_LINKED: Final = 5
_MAX_LINKED_CHARS: Final = 100_000
_MAX_ENTITIES: Final = 50


def read_metadata(tree: LexborHTMLParser) -> dict[str, str]:
    """Return fields of PageMetadata; title and language are read elsewhere.

    Dates and times are of ISO 8601, others are left out. The canonical URL is as the page has it.
    """
    said = {**_linked_data(tree), **_elements(tree)}
    found = {}
    for field, names in _NAMES.items():
        clean = _iso if field in _DATES else _url if field == "canonical_url" else clean_title
        value = next((value for name in names if (value := clean(said.get(name)))), None)
        if value is not None:
            found[field] = value
    link = tree.css_first("link[rel~=canonical i][href]")
    if link is not None and (url := _url(link.attributes.get("href"))):
        found["canonical_url"] = url
    return found


def published_at(tree: LexborHTMLParser) -> datetime | None:
    """Return when the page was published, as it says itself; a time without an offset is one in UTC."""
    said = read_metadata(tree).get("published")
    if said is None:
        return None
    at = datetime.fromisoformat(said)
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return at if _FIRST_YEAR <= at.year < MAXYEAR else None


def _elements(tree: LexborHTMLParser) -> dict[str, str]:
    """Return the first value of each name of meta elements and of microdata."""
    said: dict[str, str] = {}
    for node in tree.css(_PLACES)[:_MAX_PLACES]:
        has = node.attributes
        name = has.get("name") or has.get("property") or has.get("itemprop") or has.get("http-equiv")
        value = has.get("content") or has.get("datetime")
        if name and value:
            said.setdefault(name.strip().lower(), value)
    return said


def _linked_data(tree: LexborHTMLParser) -> dict[str, str]:
    """Return what the first JSON-LD entity with a date says, under names of meta elements."""
    for script in tree.css(_LINKED)[:_MAX_LINKED]:
        text = script.text()
        with suppress(ValueError, RecursionError):
            for entity in _entities(json.loads(text if len(text) <= _MAX_LINKED_CHARS else "null")):
                dates = {name.lower(): entity.get(name) for name in ("datePublished", "dateModified")}
                if any(dates.values()):
                    more = {"author": _named(entity.get("author"))}
                    more["og:site_name"] = _named(entity.get("publisher"))
                    return {
                        name: value for name, value in {**dates, **more}.items() if isinstance(value, str)
                    }
    return {}


def _entities(data: Any) -> Iterator[dict[str, Any]]:
    graph = data.get("@graph", data) if isinstance(data, dict) else data
    for each in (graph if isinstance(graph, list) else [graph])[:_MAX_ENTITIES]:
        if isinstance(each, dict):
            yield each


def _named(who: Any) -> Any:
    first = who[0] if isinstance(who, list) and who else who
    return first.get("name") if isinstance(first, dict) else first


def _iso(text: str | None) -> str | None:
    """Return a date or time of ISO 8601 in its usual spelling."""
    text = (text or "").strip()
    for kind in (date, datetime):
        with suppress(ValueError):
            return kind.fromisoformat(text).isoformat()
    return None


def _url(text: str | None) -> str | None:
    url = (text or "").strip()
    return url if 0 < len(url) <= MAX_URL_LENGTH else None
