"""Documents that are ZIP files of XML parts: bounded before anything is unpacked, and without DTDs."""

from __future__ import annotations

import io
import zipfile
from typing import Final
from xml.etree.ElementTree import Element

from indexmill.contracts.errors import ErrorCode, failure

START: Final = b"PK\x03\x04"
_ENTRY: Final = b"PK\x01\x02"
"""Begins a part's entry in the central directory."""
_MAX_PARTS: Final = 10_000
_MAX_UNPACKED: Final = 64 << 20
"""Bytes of all parts together, images included; a part never gives more than its entry says."""


class Container:
    """An open document; parts are read whole."""

    def __init__(self, body: bytes) -> None:
        """Raises PermanentError: parse_error (damaged, encrypted), content_too_large."""
        # Counted before: an entry of 46 bytes takes half a kilobyte of memory.
        if body.count(_ENTRY) > _MAX_PARTS:
            raise failure(ErrorCode.CONTENT_TOO_LARGE, f"The document has more than {_MAX_PARTS:,} parts")
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(body))
        except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
            raise failure(ErrorCode.PARSE_ERROR, "The document's archive is damaged") from error
        parts = self._zip.infolist()
        if sum(part.file_size for part in parts) > _MAX_UNPACKED:
            raise failure(
                ErrorCode.CONTENT_TOO_LARGE, f"Unpacked, the document has more than {_MAX_UNPACKED >> 20} MiB"
            )
        self._names = {part.filename for part in parts}

    def names(self) -> frozenset[str]:
        """Return the names of all parts."""
        return frozenset(self._names)

    def read(self, name: str) -> bytes:
        """Return a part. Raises PermanentError(parse_error) when it is missing, damaged or encrypted."""
        try:
            return self._zip.read(name)
        except (KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, OSError, EOFError) as error:
            raise failure(ErrorCode.PARSE_ERROR, "A part of the document cannot be read") from error

    def xml(self, name: str) -> Element:
        """Return the root of an XML part. Raises PermanentError(parse_error), also for a DTD."""
        return parse_xml(self.read(name))


def parse_xml(body: bytes | str) -> Element:
    """Return the root element. Raises PermanentError(parse_error) for what is no XML, or has a DTD."""
    from defusedxml.common import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        root: Element = fromstring(body, forbid_dtd=True)
    except (ParseError, DefusedXmlException, LookupError, ValueError) as error:
        raise failure(ErrorCode.PARSE_ERROR, "The document's XML is damaged, or has a DTD") from error
    return root


def table(rows: list[list[str]]) -> str:
    """Return a Markdown table whose first row is its head; "" for no cells. Empty rows are left out."""
    kept = [row for row in rows if any(row)]
    width = max((len(row) for row in kept), default=0)
    if not width:
        return ""
    full = ([*map(_cell, row), *[""] * (width - len(row))] for row in kept)
    lines = [f"| {' | '.join(row)} |" for row in full]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
