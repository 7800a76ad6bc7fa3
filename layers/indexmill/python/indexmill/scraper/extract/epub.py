"""EPUB: the chapters of a book in the order of its spine."""

from __future__ import annotations

import posixpath
from collections.abc import Collection
from typing import Final, NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.scraper.extract.container import Container
from indexmill.scraper.extract.text import clean_title, decode
from indexmill.scraper.extract.xhtml import as_html

PACKAGES: Final = "META-INF/container.xml"
"""Part that every book has: it names the part with the book's list of chapters."""
_PACKAGE: Final = "application/oebps-package+xml"
_DC: Final = "{http://purl.org/dc/elements/1.1/}"
_ENCRYPTION: Final = "META-INF/encryption.xml"
_ENCRYPTED: Final = "{http://www.w3.org/2001/04/xmlenc#}CipherReference"
_XHTML: Final = "application/xhtml+xml"
_CHAPTERS: Final = (_XHTML, "text/html")
_MAX_CHAPTERS: Final = 5_000
_MAX_NAMED: Final = 5


class Book(NamedTuple):
    """Contents of a book."""

    markdown: str
    title: str | None
    language: str | None
    notes: tuple[str, ...] = ()


class _Item(NamedTuple):
    """An entry of the book's manifest."""

    part: str
    media_type: str
    contents: bool
    """Whether it is the table of contents, whose links are no text of the book."""


def read_epub(body: bytes) -> Book:
    """Return the Markdown of all chapters, title and language; a note names the chapters without text.

    Raises PermanentError: parse_error, content_too_large.
    """
    book = Container(body)
    rootfiles = book.xml(PACKAGES).findall(".//{*}rootfile")
    if not rootfiles:
        raise failure(ErrorCode.PARSE_ERROR, "The book has no package")
    # A book may be there in other forms too.
    rootfile = next((each for each in rootfiles if each.get("media-type") == _PACKAGE), rootfiles[0])
    path = _normal(rootfile.get("full-path", ""))
    package = book.xml(path)
    items = _items(package, posixpath.dirname(path), book.names())
    order = [items[ref] for each in package.findall(".//{*}itemref") if (ref := each.get("idref")) in items]
    if len(order) > _MAX_CHAPTERS:
        raise failure(ErrorCode.CONTENT_TOO_LARGE, f"The book has more than {_MAX_CHAPTERS:,} chapters")
    protected = _protected(book)
    if any(item.part in protected for item in order):
        raise failure(ErrorCode.PARSE_ERROR, "The book's chapters are encrypted")
    # A book may name a chapter twice; its text counts once.
    texts = {item: _text(book, item) for item in dict.fromkeys(order)}
    return Book(
        "\n\n".join(filter(None, texts.values())),
        clean_title(package.findtext(f".//{_DC}title")),
        package.findtext(f".//{_DC}language"),
        _notes([item.part for item, text in texts.items() if not (text or item.contents)], len(texts)),
    )


def _items(package: Element, folder: str, names: Collection[str]) -> dict[str | None, _Item]:
    """Return the items of the manifest by their id; their media types are believed."""
    found = {}
    for item in package.findall(".//{*}item"):
        media_type = item.get("media-type", "").partition(";")[0].strip().lower()
        contents = "nav" in item.get("properties", "").split()
        found[item.get("id")] = _Item(_part(folder, item.get("href", ""), names), media_type, contents)
    return found


def _part(folder: str, href: str, names: Collection[str]) -> str:
    """Return the name of a part. A reference is percent-encoded; some programs give the name itself."""
    path = href.partition("#")[0]
    part, plain = (_normal(posixpath.join(folder, each)) for each in (unquote(path), path))
    return plain if plain in names and part not in names else part


def _normal(path: str) -> str:
    return posixpath.normpath(path).lstrip("/")


def _protected(book: Container) -> set[str]:
    """Return the parts that only a reader with a key can open; fonts often are."""
    if _ENCRYPTION not in book.names():
        return set()
    return {_normal(unquote(each.get("URI", ""))) for each in book.xml(_ENCRYPTION).iter(_ENCRYPTED)}


def _text(book: Container, item: _Item) -> str:
    """Return the whole text of a chapter, since no site is around it; links of contents are none."""
    from indexmill.scraper.extract.html import read_html

    if item.media_type not in _CHAPTERS or item.part not in book.names():
        return ""
    markup = decode(book.read(item.part), None, markup=True)
    html = as_html(markup) if item.media_type == _XHTML else markup
    return read_html(html, whole=not item.contents).markdown


def _notes(empty: list[str], count: int) -> tuple[str, ...]:
    if not empty:
        return ()
    names = [clean_title(posixpath.basename(part)) or "" for part in empty[:_MAX_NAMED]]
    more = f" and {len(empty) - len(names)} more" if len(empty) > len(names) else ""
    return (f"Chapters without text: {len(empty)} of {count} ({', '.join(names)}{more})",)
