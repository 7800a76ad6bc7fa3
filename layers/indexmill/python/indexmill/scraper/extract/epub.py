"""EPUB: the chapters of a book in the order of its spine."""

from __future__ import annotations

import posixpath
from typing import Final
from urllib.parse import unquote

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.classify import failure
from indexmill.scraper.extract.container import Container
from indexmill.scraper.extract.text import clean_title, decode

START: Final = b"mimetypeapplication/epub+zip"
_CONTAINER: Final = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF: Final = "{http://www.idpf.org/2007/opf}"
_DC: Final = "{http://purl.org/dc/elements/1.1/}"
_CHAPTERS: Final = ("application/xhtml+xml", "text/html")
_MAX_CHAPTERS: Final = 5_000


def read_epub(body: bytes) -> tuple[str, str | None, str | None]:
    """Return Markdown of all chapters, title and language.

    Raises PermanentError: parse_error, content_too_large.
    """
    from indexmill.scraper.extract.html import read_html

    book = Container(body)
    rootfile = book.xml("META-INF/container.xml").find(f".//{_CONTAINER}rootfile")
    if rootfile is None:
        raise failure(ErrorCode.PARSE_ERROR, "The book has no package")
    path = rootfile.get("full-path", "")
    package = book.xml(path)
    folder = posixpath.dirname(path)
    files = {
        item.get("id"): posixpath.normpath(posixpath.join(folder, unquote(item.get("href", ""))))
        for item in package.iter(f"{_OPF}item")
        if item.get("media-type") in _CHAPTERS
    }
    order = [files[ref] for each in package.iter(f"{_OPF}itemref") if (ref := each.get("idref")) in files]
    if len(order) > _MAX_CHAPTERS:
        raise failure(ErrorCode.CONTENT_TOO_LARGE, f"The book has more than {_MAX_CHAPTERS:,} chapters")
    # A book may name a chapter twice; its text counts once.
    chapters = [read_html(decode(book.read(name), None, markup=True))[0] for name in dict.fromkeys(order)]
    title = clean_title(package.findtext(f".//{_DC}title"))
    return "\n\n".join(filter(None, chapters)), title, package.findtext(f".//{_DC}language")
