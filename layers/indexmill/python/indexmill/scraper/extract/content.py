"""Extraction by kind of content."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.contracts.errors import ErrorCode
from indexmill.scraper.classify import failure
from indexmill.scraper.extract.charset import decode
from indexmill.scraper.extract.detect import Kind
from indexmill.scraper.extract.hazards import MAX_TAGS_IN_PROCESS
from indexmill.scraper.extract.markdown import read_markdown, read_text
from indexmill.scraper.extract.pdf import read_pdf


@dataclass(frozen=True, slots=True)
class RawContent:
    """Content to extract."""

    body: bytes
    kind: Kind
    charset: str | None = None
    """As the site declared it."""


@dataclass(frozen=True, slots=True)
class Extracted:
    """Readable text of a page."""

    markdown: str
    title: str | None
    language: str | None = None


def is_risky(content: RawContent) -> bool:
    """Return whether reading `content` in this process could stop or kill it."""
    if content.kind is Kind.PDF:
        return True
    return content.kind is Kind.HTML and content.body.count(b"<") > MAX_TAGS_IN_PROCESS


def extract(content: RawContent) -> Extracted:
    """Return the readable text of `content`.

    Raises PermanentError: empty_content, parse_error, content_too_large.
    """
    language = None
    if content.kind is Kind.PDF:
        markdown, title = read_pdf(content.body)
    elif content.kind is Kind.HTML:
        # 50 ms of import that a process without HTML spares.
        from indexmill.scraper.extract.html import read_html

        markdown, title, language = read_html(decode(content.body, content.charset, markup=True))
    else:
        read = read_markdown if content.kind is Kind.MARKDOWN else read_text
        markdown, title = read(decode(content.body, content.charset))
    if not markdown:
        raise failure(ErrorCode.EMPTY_CONTENT)
    return Extracted(markdown, title, language)
