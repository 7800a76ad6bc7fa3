"""JSON, CSV and XML as Markdown: lists, tables, and the entries of a feed."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from typing import Any, Final
from xml.etree.ElementTree import Element

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.scraper.extract.container import parse_xml, table
from indexmill.scraper.extract.text import clean_text, clean_title

_MAX_DEPTH: Final = 12
"""Deeper values are written on one line: indentation must not multiply the text."""
_DELIMITERS: Final = ",;\t|"
_MORE: Final = "Extra data"
"""Says Python's parser of what follows a value."""
_TITLED: Final = ("title", "name")
_TEXTS: Final = ("encoded", "content", "description", "summary")
"""Elements of a feed's entry that may have its text, the fullest first."""
_DATES: Final = ("pubDate", "published", "updated", "date")


def read_json(text: str) -> tuple[str, str | None]:
    """Return nested lists of `key: value`, and the value of a top-level `title` or `name`.

    Raises PermanentError(parse_error), as all readers here do.
    """
    try:
        found = _loaded(text)
    except (ValueError, RecursionError) as error:
        raise failure(ErrorCode.PARSE_ERROR, "This is no JSON, or too deeply nested") from error
    title = None
    if isinstance(found, dict):
        title = next((found[name] for name in _TITLED if isinstance(found.get(name), str)), None)
    return clean_text("\n".join(_lines(found, 0))), clean_title(title)


def _loaded(text: str) -> Any:
    """Return one JSON value, or the list of those of the lines. Raises ValueError, RecursionError."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        if error.msg != _MORE:
            raise
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, dict) and value:
        pairs = [(f"{name}: ", each) for name, each in value.items()]
    elif isinstance(value, list) and value:
        pairs = [("", each) for each in value]
    else:
        yield f"{indent}- {_scalar(value)}"
        return
    for name, each in pairs:
        if not isinstance(each, dict | list) or not each:
            yield f"{indent}- {name}{_scalar(each)}"
        elif depth == _MAX_DEPTH:
            yield f"{indent}- {name}{json.dumps(each, ensure_ascii=False)}"
        else:
            yield f"{indent}- {name}".rstrip()
            yield from _lines(each, depth + 1)


def _scalar(value: Any) -> str:
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value)


def read_csv(text: str) -> tuple[str, str | None]:
    """Return one table; the delimiter is the one of `,;|` and tab that the first line has most often."""
    first = text.split("\n", 1)[0]
    delimiter = max(_DELIMITERS, key=first.count)
    try:
        rows = list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise failure(ErrorCode.PARSE_ERROR, "This is no table of separated values") from error
    return clean_text(table(rows)), None


def read_xml(text: str) -> tuple[str, str | None]:
    """Return the entries of an RSS or Atom feed, or the text of another document, and its title."""
    root = parse_xml(text.lstrip("\ufeff \t\r\n"))
    entries = [each for each in root.iter() if _name(each) in ("item", "entry")]
    if not entries or _name(root) not in ("rss", "feed", "RDF"):
        texts = (part.strip() for part in root.itertext())
        return clean_text("\n".join(filter(None, texts))), _text_of(root, _TITLED)
    channel = next((each for each in root.iter() if _name(each) == "channel"), root)
    parts = filter(None, map(_entry, entries))
    return clean_text("\n\n".join(parts)), _text_of(channel, _TITLED[:1])


def _entry(entry: Element) -> str:
    from indexmill.scraper.extract.html import read_html
    from indexmill.scraper.extract.markup import escape_text

    title, date = _text_of(entry, _TITLED[:1]), _text_of(entry, _DATES)
    html = next((found for name in _TEXTS if (found := _content(entry, name))), "")
    text = read_html(f"<main>{html}</main>")[0] if html else ""
    head = (f"## {escape_text(title)}" if title else "", escape_text(date or ""))
    return "\n\n".join(filter(None, (*head, text)))


def _content(entry: Element, name: str) -> str:
    found = next((each for each in entry if _name(each) == name), None)
    # Atom may have XHTML as elements.
    return "" if found is None else " ".join(part for part in found.itertext() if part.strip())


def _text_of(parent: Element, names: tuple[str, ...]) -> str | None:
    for name in names:
        found = next((each for each in parent if _name(each) == name), None)
        text = None if found is None else clean_title(_plain("".join(found.itertext()), found.get("type")))
        if text:
            return text
    return None


def _plain(text: str, said: str | None) -> str:
    """Return the text of a construct of Atom, which may be HTML."""
    if said != "html" or not text:
        return text
    from selectolax.lexbor import LexborHTMLParser

    body = LexborHTMLParser(text).body
    return body.text() if body is not None else text


def _name(element: Element) -> str:
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
