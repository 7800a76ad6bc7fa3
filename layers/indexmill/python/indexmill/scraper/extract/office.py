"""Text of office documents: PDF by PDFium; Word by mammoth, Excel by openpyxl, PowerPoint by ourselves."""

from __future__ import annotations

import io
import posixpath
import re
from collections.abc import Iterator
from datetime import datetime, time
from itertools import accumulate
from typing import Any, Final
from xml.etree.ElementTree import Element

from indexmill.contracts.errors import ErrorCode, IndexmillError, failure
from indexmill.scraper.extract.container import Container, table
from indexmill.scraper.extract.text import clean_text, clean_title

MAX_CHARACTERS: Final = 20_000_000
MAX_PAGES: Final = 2_000
_MAX_SLIDES: Final = 2_000
_CORE: Final = "docProps/core.xml"
_DC_TITLE: Final = "{http://purl.org/dc/elements/1.1/}title"
_RELATION: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
_A: Final = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P: Final = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_TITLES: Final = ("title", "ctrTitle")
_WORD: Final = re.compile(r"\S+")
_NO_TITLE: Final = re.compile(
    r"[(\[]?(untitled|anonymous|unnamed|no title)(-\d+| document)?[)\]]?", re.IGNORECASE
)
"""What programs write for a title that the author left empty."""


def read_pdf(body: bytes) -> tuple[str, str | None, tuple[int, ...]]:
    """Return the text of all pages, an empty line between them, the title and where each page begins.

    The title is that of the metadata, or the first line.

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
    return markdown, title or clean_title(markdown.split("\n", 1)[0]), _page_starts(markdown, pages)


def _page_starts(markdown: str, pages: list[str]) -> tuple[int, ...]:
    """Return the offset of each page in the clean text of all; that of one without text is the next one's.

    Cleaning changes white space and unseen characters only, so the others are counted.
    """
    sizes = [len("".join(clean_text(page).split())) for page in pages]
    if sum(sizes) != len("".join(markdown.split())):
        return ()
    starts: list[int] = []
    words, seen = _WORD.finditer(markdown), 0
    word = next(words, None)
    for before in accumulate(sizes[:-1], initial=0):
        while word is not None and seen < before:
            seen += len(word[0])
            word = next(words, None)
        starts.append(len(markdown) if word is None else word.start())
    return tuple(starts)


def read_docx(body: bytes) -> tuple[str, str | None]:
    """Return headings, paragraphs, lists and tables, and the title: metadata or first line.

    Raises PermanentError: parse_error, content_too_large, as all readers here do.
    """
    import mammoth

    from indexmill.scraper.extract.html import read_html

    document = Container(body)
    # mammoth's own parser would take a DTD.
    for name in document.names():
        if name.endswith((".xml", ".rels")):
            document.xml(name)
    try:
        found = mammoth.convert_to_html(io.BytesIO(body), convert_image=mammoth.images.img_element(_no_image))
    except Exception as error:  # what a damaged document makes of it has no class of its own
        raise failure(ErrorCode.PARSE_ERROR, "The document is damaged") from error
    markdown, *_ = read_html(f"<main>{found.value}</main>")
    return markdown, _title(document) or clean_title(markdown.split("\n", 1)[0].lstrip("# "))


def _no_image(_image: Any) -> dict[str, str]:
    return {"src": ""}


def read_pptx(body: bytes) -> tuple[str, str | None]:
    """Return the slides in their order, each below its title, and the title: metadata or first slide's."""
    document = Container(body)
    slides = list(_slides(document))
    markdown = clean_text("\n\n".join(text for _, text in slides))
    first = next((title for title, _ in slides if title), None)
    return markdown, _title(document) or first


def _slides(document: Container) -> Iterator[tuple[str | None, str]]:
    """Yield title and Markdown of each slide."""
    whole = document.xml("ppt/presentation.xml")
    targets = {
        each.get("Id"): posixpath.normpath(posixpath.join("ppt", each.get("Target", "")))
        for each in document.xml("ppt/_rels/presentation.xml.rels")
    }
    ids = [each.get(_RELATION) for each in whole.iter(f"{_P}sldId")]
    if len(ids) > _MAX_SLIDES:
        raise failure(ErrorCode.CONTENT_TOO_LARGE, f"The document has more than {_MAX_SLIDES:,} slides")
    for each in ids:
        title: str | None = None
        parts: list[str] = []
        part = targets.get(each, "").lstrip("/")
        for shape in document.xml(part).iter():
            if shape.tag == f"{_P}sp":
                text = _paragraphs(shape)
                if _is_title(shape) and text and title is None:
                    title = clean_title(text)
                    parts.insert(0, f"## {title}")
                elif text:
                    parts.append(text)
            elif shape.tag == f"{_A}tbl":
                rows = shape.iter(f"{_A}tr")
                parts.append(table([[_paragraphs(cell) for cell in row.iter(f"{_A}tc")] for row in rows]))
        if notes := _notes(document, part):
            parts.append(f"Notes: {notes}")
        yield title, "\n\n".join(parts)


def _notes(document: Container, slide: str) -> str:
    """Return the speaker's notes to a slide."""
    folder, name = posixpath.split(slide)
    relations = f"{folder}/_rels/{name}.rels"
    if relations not in document.names():
        return ""
    for each in document.xml(relations):
        if each.get("Type", "").endswith("/notesSlide"):
            part = posixpath.normpath(posixpath.join(folder, each.get("Target", ""))).lstrip("/")
            shapes = document.xml(part).iter(f"{_P}sp")
            return "\n\n".join(_paragraphs(shape) for shape in shapes if _is_body(shape))
    return ""


def _is_body(shape: Element) -> bool:
    return any(each.get("type") == "body" for each in shape.iter(f"{_P}ph"))


def _is_title(shape: Element) -> bool:
    return any(each.get("type") in _TITLES for each in shape.iter(f"{_P}ph"))


def _paragraphs(shape: Element) -> str:
    lines = ("".join(run.text or "" for run in each.iter(f"{_A}t")) for each in shape.iter(f"{_A}p"))
    return "\n\n".join(line for line in lines if line.strip())


def read_xlsx(body: bytes) -> tuple[str, str | None]:
    """Return a table for each visible sheet, with its last computed values, and the title if any."""
    import openpyxl

    document = Container(body)
    try:
        # It reads XML by defusedxml, since that is installed.
        book = openpyxl.load_workbook(io.BytesIO(body), read_only=True, data_only=True)
        markdown = "\n\n".join(_sheets(book))
    except IndexmillError:
        raise
    except Exception as error:  # what a damaged document makes of it has no class of its own
        raise failure(ErrorCode.PARSE_ERROR, "The document is damaged") from error
    return clean_text(markdown), _title(document)


def _sheets(book: Any) -> Iterator[str]:
    size = 0
    for sheet in book.worksheets:
        if sheet.sheet_state != "visible":
            continue
        # A sheet may claim a million columns.
        sheet.reset_dimensions()
        rows: list[list[str]] = []
        for row in sheet.iter_rows(values_only=True):
            cells = [_shown(value) for value in row]
            while cells and not cells[-1]:
                cells.pop()
            size += sum(map(len, cells)) + len(cells)
            if size > MAX_CHARACTERS:
                raise failure(ErrorCode.CONTENT_TOO_LARGE, "The document has more text than the limit")
            if cells:
                rows.append(cells)
        if rows:
            yield f"## {sheet.title}\n\n{table(rows)}"


def _shown(value: Any) -> str:
    """Return a cell's value; a date has no time of day."""
    if value is None:
        return ""
    midnight = isinstance(value, datetime) and value.time() == time()
    return str(value.date() if midnight else value)


def _title(document: Container) -> str | None:
    """Return the title in the document's metadata."""
    if _CORE not in document.names():
        return None
    return clean_title(document.xml(_CORE).findtext(_DC_TITLE))
