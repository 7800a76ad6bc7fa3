"""Extraction by kind of content: the site's header is checked against the first bytes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, get_args
from urllib.parse import urlsplit

from indexmill.contracts.errors import ErrorCode, PermanentError, failure
from indexmill.contracts.identity import Doubt
from indexmill.scraper.extract import container, data, epub, office
from indexmill.scraper.extract.text import WIDE_STARTS, decode, misread, read_markdown, read_text
from indexmill.scraper.extract.xhtml import as_html

if TYPE_CHECKING:
    from indexmill.scraper.extract.html import Page

_MAX_BYTES_IN_PROCESS: Final = 512 * 1024
"""Ten of a larger size at once could need more memory than the function has: up to 15 times their bytes."""
MAX_TEXT_BYTES: Final = 20 * 1024 * 1024
"""Of a content's Markdown and HTML; separators and indents can make much of little."""
LONG_TEXT_BYTES: Final = 4 * 1024 * 1024
"""Longer text is in no message and no answer."""
_MAX_TAGS_IN_PROCESS: Final = 8_000
"""More start and end tags than this are parsed where they can be stopped: nesting them costs up to 0.3 s."""


class Kind(StrEnum):
    """The kinds of content that can be read; the value is the media type."""

    HTML = "text/html"
    XHTML = "application/xhtml+xml"
    MARKDOWN = "text/markdown"
    TEXT = "text/plain"
    PDF = "application/pdf"
    DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    PPTX = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
    EPUB = "application/epub+zip"
    JSON = "application/json"
    CSV = "text/csv"
    XML = "application/xml"


EXTRACTORS: Final[Mapping[str, str]] = {**dict.fromkeys(Kind, "3"), Kind.PDF: "2"}
"""Version of the code that makes text of each kind; raised when the same content gives another text."""
_CONTAINERS: Final = {
    "word/document.xml": Kind.DOCX,
    "ppt/presentation.xml": Kind.PPTX,
    "xl/workbook.xml": Kind.XLSX,
    epub.PACKAGES: Kind.EPUB,
}
"""ZIP files, by the name of a part that each of its kind has."""
_ISOLATED: Final = frozenset((Kind.PDF, *_CONTAINERS.values()))
WEB: Final = frozenset((Kind.HTML, Kind.XHTML))
"""Web pages, which may lead to others."""
_MARKUP: Final = frozenset((*WEB, Kind.XML))
"""Content that may name its charset itself."""
MOST_UNREADABLE: Final = 0.1
"""Share of U+FFFD in a text that is read all the same."""
_DECLARED: Final = {
    "text/html": Kind.HTML,
    "application/xhtml+xml": Kind.XHTML,
    "text/markdown": Kind.MARKDOWN,
    "text/x-markdown": Kind.MARKDOWN,
    "text/plain": Kind.TEXT,
    "application/pdf": Kind.PDF,
    "application/x-pdf": Kind.PDF,
    "application/json": Kind.JSON,
    "application/ld+json": Kind.JSON,
    "application/geo+json": Kind.JSON,
    "text/json": Kind.JSON,
    "application/x-ndjson": Kind.JSON,
    "application/ndjson": Kind.JSON,
    "application/jsonl": Kind.JSON,
    "text/csv": Kind.CSV,
    "text/tab-separated-values": Kind.CSV,
    "application/csv": Kind.CSV,
    "application/xml": Kind.XML,
    "text/xml": Kind.XML,
    "application/rss+xml": Kind.XML,
    "application/atom+xml": Kind.XML,
    "application/rdf+xml": Kind.XML,
    **{kind.value: kind for kind in _CONTAINERS.values()},
}
_UNDECLARED: Final = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/unknown"})
_SUFFIX: Final = {
    ".md": Kind.MARKDOWN,
    ".markdown": Kind.MARKDOWN,
    ".txt": Kind.TEXT,
    ".html": Kind.HTML,
    ".htm": Kind.HTML,
    ".xhtml": Kind.XHTML,
    ".xht": Kind.XHTML,
    ".json": Kind.JSON,
    ".ndjson": Kind.JSON,
    ".jsonl": Kind.JSON,
    ".csv": Kind.CSV,
    ".tsv": Kind.CSV,
    ".xml": Kind.XML,
    ".rss": Kind.XML,
    ".atom": Kind.XML,
}
_HTML_START: Final = (b"<!doctype html", b"<html", b"<head", b"<body")
_XHTML_ROOT: Final = re.compile(rb"<(?:\w+:)?html\s[^<>]*[\"']http://www\.w3\.org/1999/xhtml[\"']")
_BINARY_START: Final = (
    b"\x1f\x8b",
    b"\x89PNG",
    b"\xff\xd8\xff",
    b"GIF8",
    b"MZ",
    b"\x7fELF",
    b"Rar!",
    b"7z\xbc\xaf",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
)
_WIDE_BOM: Final = (b"\xff\xfe", b"\xfe\xff")
_SNIFFED: Final = 1024


def detect(body: bytes, content_type: str, url: str) -> Kind:
    """Return the kind of `body`; the bytes win over `content_type`, and `url` decides where neither tells.

    Raises PermanentError: empty_content, unsupported_content_type, parse_error (no PDF behind that name).
    """
    if not body or not body[:65536].strip():
        raise failure(ErrorCode.EMPTY_CONTENT)
    start = body[:_SNIFFED]
    if b"%PDF-" in start:
        return Kind.PDF
    if body.startswith(container.START):
        return _container(body, content_type)
    looks_html = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower().startswith(_HTML_START)
    # A page may have a stray NUL, which browsers leave out.
    if start.startswith(_BINARY_START) or (b"\0" in start and not looks_html and not _is_wide(start)):
        raise failure(ErrorCode.UNSUPPORTED_CONTENT_TYPE)
    declared = _DECLARED.get(content_type)
    if declared is Kind.XML and _XHTML_ROOT.search(start):
        return Kind.XHTML
    if declared is None:
        suffix = _by_suffix(url)
        is_xhtml = suffix is Kind.XHTML and _XHTML_ROOT.search(start) is not None
        return _undeclared(content_type, looks_html and not is_xhtml, suffix)
    if looks_html:
        # Pages for people are served under every name; Markdown and text may begin with markup.
        return declared if declared in (Kind.MARKDOWN, Kind.TEXT, Kind.XHTML) else Kind.HTML
    if declared in _ISOLATED:
        raise failure(ErrorCode.PARSE_ERROR, "The content is not of the type that its site says")
    suffix = _by_suffix(url)
    return suffix if declared is Kind.TEXT and suffix in (Kind.MARKDOWN, Kind.CSV, Kind.JSON) else declared


def _container(body: bytes, content_type: str) -> Kind:
    """Return the kind of a ZIP file by its central directory; another document may be embedded in it.

    Raises PermanentError: unsupported_content_type, parse_error, content_too_large.
    """
    found = {part: kind for part, kind in _CONTAINERS.items() if part.encode() in body}
    names = container.Container(body).names() if found else ()
    kinds = [kind for part, kind in found.items() if part in names]
    if not kinds:
        raise failure(ErrorCode.UNSUPPORTED_CONTENT_TYPE)
    declared = _DECLARED.get(content_type)
    return declared if declared in kinds else kinds[0]


def _undeclared(content_type: str, looks_html: bool, suffix: Kind | None) -> Kind:
    if content_type in _UNDECLARED:
        if looks_html:
            return Kind.HTML
        if suffix is not None:
            return suffix
    raise failure(ErrorCode.UNSUPPORTED_CONTENT_TYPE)


def _is_wide(start: bytes) -> bool:
    """Return whether this can be UTF-16: a byte order mark, or a markup start in 16-bit units."""
    return start.startswith(_WIDE_BOM) or start[:4] in WIDE_STARTS


def _by_suffix(url: str) -> Kind | None:
    name = urlsplit(url).path.rpartition("/")[2].lower()
    dot = name.rfind(".")
    return _SUFFIX.get(name[dot:]) if dot > 0 else None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Parts of a web page that are asked for beside the Markdown of its main part."""

    html: bool = False
    details: bool = False
    """Metadata beside title and language."""
    whole: bool = False
    """Everything that a browser shows, not the main part alone."""
    links: bool = False
    login_required: bool = False
    """Read a page that looks like a log-in."""
    soft_404: bool = False
    """Read a page that looks like one for pages that do not exist."""
    noscript: bool = False
    """Read what is for browsers without scripts where a page has nothing else."""

    @property
    def accept(self) -> Collection[str]:
        """Doubts despite which the page is read."""
        return [code for code in get_args(Doubt) if getattr(self, code)]


MAIN_PART: Final = Wanted()


@dataclass(frozen=True, slots=True)
class RawContent:
    """Content to extract."""

    body: bytes
    kind: Kind
    charset: str | None = None
    """As the site declared it."""
    wanted: Wanted = MAIN_PART


@dataclass(frozen=True, slots=True)
class Extracted:
    """Readable text of a page."""

    markdown: str
    title: str | None
    language: str | None = None
    robots: tuple[str, ...] = ()
    """Rules of the page's robots meta elements, in the form of X-Robots-Tag headers."""
    html: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Fields of PageMetadata, as the page says them."""
    canonical: str | None = None
    """Canonical URL, as the page has it, perhaps relative to its own."""
    published: datetime | None = None
    """When a web page was published, as it says itself."""
    links: tuple[str, ...] = ()
    """As the page has them, perhaps relative to its URL, where they are wanted."""
    notes: tuple[str, ...] = ()
    """Sentences about what could not be read, for people."""
    page_starts: tuple[int, ...] = ()
    """Offsets in the Markdown at which the pages of a PDF begin."""
    encoded: bytes = b""
    """The Markdown in UTF-8 when it is longer than LONG_TEXT_BYTES and was read in another process, so that
    this one has it once; `markdown` is "" then."""


class Unusable(PermanentError):
    """A page that was read and has nothing to index, or must not be."""

    def __init__(self, code: str, message: str, links: Sequence[str] = ()) -> None:
        """`links` are those that a crawl may follow."""
        super().__init__(code, message)
        self.links = tuple(links)


def is_risky(content: RawContent) -> bool:
    """Return whether reading `content` in this process could stop or kill it."""
    if content.kind in _ISOLATED or len(content.body) > _MAX_BYTES_IN_PROCESS:
        return True
    return content.kind in (*WEB, Kind.XML) and content.body.count(b"<") > _MAX_TAGS_IN_PROCESS


def extract(content: RawContent) -> Extracted:
    """Return the readable text of `content`.

    Raises PermanentError: parse_error, content_too_large; Unusable with the links: empty_content, and of a
    web page login_required, soft_404, needs_javascript.
    """
    try:
        found = _READERS[content.kind](content)
        if not found.markdown:
            raise failure(ErrorCode.EMPTY_CONTENT)
        if "\ufffd" in found.markdown:
            _check_charset(content, found.markdown)
    except PermanentError as error:
        if error.code not in _UNUSABLE:
            raise
        raise Unusable(error.code, error.message, _links(content, cautious=True)) from error
    return replace(found, links=_links(content)) if content.wanted.links else found


_UNUSABLE: Final = frozenset(
    {ErrorCode.EMPTY_CONTENT, ErrorCode.LOGIN_REQUIRED, ErrorCode.SOFT_404, ErrorCode.NEEDS_JAVASCRIPT}
)


def _check_charset(content: RawContent, markdown: str) -> None:
    """Raise PermanentError(parse_error) when more than a tenth of the text could not be decoded."""
    if content.kind in _ISOLATED or markdown.count("\ufffd") <= MOST_UNREADABLE * len(
        "".join(markdown.split())
    ):
        return
    charset = misread(content.body, content.charset, markup=content.kind in _MARKUP)
    if charset is not None:
        raise failure(ErrorCode.PARSE_ERROR, f"The text is not in its charset, {charset}")


def _links(content: RawContent, *, cautious: bool = False) -> tuple[str, ...]:
    if not content.wanted.links or content.kind not in WEB:
        return ()
    from indexmill.scraper.extract.markup import links_of

    return links_of(shown(content), cautious=cautious)


def html_of(content: RawContent) -> str:
    """Return a web page as an HTML parser or a browser reads it under the name text/html."""
    markup = _text_of(content)
    return as_html(markup) if content.kind is Kind.XHTML else markup


def shown(content: RawContent) -> str:
    """Return the HTML of a web page with its shadow trees, which XHTML has none of."""
    from indexmill.scraper.extract.markup import with_shadows

    html = html_of(content)
    return with_shadows(html) if content.kind is Kind.HTML else html


def _read_html(content: RawContent) -> Extracted:
    # 50 ms of import that a process without HTML spares.
    from indexmill.scraper.extract.markup import without_scripts

    html, wanted = shown(content), content.wanted
    page, code = _page(html, wanted)
    if wanted.noscript and (code == ErrorCode.NEEDS_JAVASCRIPT or not page.markdown):
        again = without_scripts(html)
        if again is not None:
            page, code = _page(again, wanted)
            code = None if code == ErrorCode.NEEDS_JAVASCRIPT else code
    if code is not None:
        raise failure(code)
    return Extracted(*page)


def _page(html: str, wanted: Wanted) -> tuple[Page, ErrorCode | None]:
    """Return what can be read of a page, and why that is nothing to index."""
    from indexmill.scraper.extract import unusable
    from indexmill.scraper.extract.html import read_html

    page = read_html(html, with_html=wanted.html, with_metadata=wanted.details, whole=wanted.whole)
    return page, unusable.reason(html, page.title, page.markdown, wanted.accept)


def _read_pdf(content: RawContent) -> Extracted:
    markdown, title, starts = office.read_pdf(content.body)
    return Extracted(markdown, title, page_starts=starts)


def _read_epub(content: RawContent) -> Extracted:
    book = epub.read_epub(content.body)
    return Extracted(book.markdown, book.title, book.language, notes=book.notes)


def _of_text(read: Callable[[str], tuple[str, str | None]]) -> Callable[[RawContent], Extracted]:
    return lambda content: Extracted(*read(_text_of(content)))


def _text_of(content: RawContent) -> str:
    return decode(content.body, content.charset, markup=content.kind in _MARKUP)


def _of_bytes(read: Callable[[bytes], tuple[str, str | None]]) -> Callable[[RawContent], Extracted]:
    return lambda content: Extracted(*read(content.body))


_READERS: Final[Mapping[Kind, Callable[[RawContent], Extracted]]] = {
    Kind.HTML: _read_html,
    Kind.XHTML: _read_html,
    Kind.MARKDOWN: _of_text(read_markdown),
    Kind.TEXT: _of_text(read_text),
    Kind.PDF: _read_pdf,
    Kind.DOCX: _of_bytes(office.read_docx),
    Kind.PPTX: _of_bytes(office.read_pptx),
    Kind.XLSX: _of_bytes(office.read_xlsx),
    Kind.EPUB: _read_epub,
    Kind.JSON: _of_text(data.read_json),
    Kind.CSV: _of_text(data.read_csv),
    Kind.XML: _of_text(data.read_xml),
}
