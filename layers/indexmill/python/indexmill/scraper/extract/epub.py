"""EPUB: the chapters of a book in the order of its spine."""

from __future__ import annotations

import posixpath
from typing import Final, NamedTuple
from urllib.parse import unquote
from xml.etree.ElementTree import Element

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.classify import failure
from indexmill.scraper.extract.container import Container
from indexmill.scraper.extract.text import clean_title, decode
from indexmill.scraper.extract.xhtml import as_html

PACKAGES: Final = "META-INF/container.xml"
"""Part that every book has: it names the part with the book's list of chapters."""
_CONTAINER: Final = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF: Final = "{http://www.idpf.org/2007/opf}"
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
    """An entry of the book's manifest that has text."""

    part: str
    xhtml: bool
    contents: bool
    """Whether it is the table of contents, whose links are no text of the book."""


def read_epub(body: bytes) -> Book:
    """Return the Markdown of all chapters, title and language; a note names the chapters without text.

    Raises PermanentError: parse_error, content_too_large.
    """
    book = Container(body)
    rootfile = book.xml(PACKAGES).find(f".//{_CONTAINER}rootfile")
    if rootfile is None:
        raise failure(ErrorCode.PARSE_ERROR, "The book has no package")
    path = rootfile.get("full-path", "")
    package = book.xml(path)
    items = _items(package, posixpath.dirname(path))
    order = [items[ref] for each in package.iter(f"{_OPF}itemref") if (ref := each.get("idref")) in items]
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


def _items(package: Element, folder: str) -> dict[str | None, _Item]:
    """Return the items with text by their id; their media types are believed."""
    found = {}
    for item in package.iter(f"{_OPF}item"):
        media_type = item.get("media-type", "").strip().lower()
        if media_type in _CHAPTERS:
            part = posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
            contents = "nav" in item.get("properties", "").split()
            found[item.get("id")] = _Item(part, media_type == _XHTML, contents)
    return found


def _protected(book: Container) -> set[str]:
    """Return the parts that only a reader with a key can open; fonts often are."""
    if _ENCRYPTION not in book.names():
        return set()
    return {unquote(each.get("URI", "")) for each in book.xml(_ENCRYPTION).iter(_ENCRYPTED)}


def _text(book: Container, item: _Item) -> str:
    from indexmill.scraper.extract.html import read_html

    markup = decode(book.read(item.part), None, markup=True)
    return read_html(as_html(markup) if item.xhtml else markup).markdown


def _notes(empty: list[str], count: int) -> tuple[str, ...]:
    if not empty:
        return ()
    names = [clean_title(posixpath.basename(part)) or "" for part in empty[:_MAX_NAMED]]
    more = f" and {len(empty) - len(names)} more" if len(empty) > len(names) else ""
    return (f"Chapters without text: {len(empty)} of {count} ({', '.join(names)}{more})",)
