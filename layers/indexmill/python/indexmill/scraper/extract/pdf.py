"""The text layer of a PDF."""

from __future__ import annotations

import re
from typing import Final

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.scraper.extract.text import clean_text, clean_title

MAX_PAGES: Final = 2_000
MAX_CHARACTERS: Final = 20_000_000
_NO_TITLE: Final = re.compile(
    r"[(\[]?(untitled|anonymous|unnamed|no title)(-\d+| document)?[)\]]?", re.IGNORECASE
)
"""What programs write for a title that the author left empty."""


def read_pdf(body: bytes) -> tuple[str, str | None]:
    """Return the text of all pages, an empty line between them, and the title: metadata or first line.

    Raises PermanentError: parse_error (damaged, encrypted), content_too_large (pages, text). Time and memory
    are bounded by the process that runs this.
    """
    import pypdfium2  # 60 ms of import that only PDFs need

    try:
        document = pypdfium2.PdfDocument(body)
    except pypdfium2.PdfiumError as error:
        raise failure(ErrorCode.PARSE_ERROR, "The PDF is damaged or protected by a password") from error
    try:
        if len(document) > MAX_PAGES:
            raise failure(ErrorCode.CONTENT_TOO_LARGE, f"The PDF has more than {MAX_PAGES:,} pages")
        pages: list[str] = []
        size = 0
        for page in document:
            text = page.get_textpage()
            pages.append(text.get_text_bounded())
            text.close()
            page.close()
            size += len(pages[-1])
            if size > MAX_CHARACTERS:
                raise failure(ErrorCode.CONTENT_TOO_LARGE, "The PDF has more text than the limit")
        title = clean_title(document.get_metadata_value("Title"))
    except pypdfium2.PdfiumError as error:
        raise failure(ErrorCode.PARSE_ERROR, "A page of the PDF cannot be read") from error
    finally:
        document.close()
    markdown = clean_text("\n\n".join(pages))
    if title is not None and _NO_TITLE.fullmatch(title):
        title = None
    return markdown, title or clean_title(markdown.split("\n", 1)[0])
