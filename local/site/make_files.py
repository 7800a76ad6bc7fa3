"""Generator of the built-in site's two binary files, byte for byte the same each time.

    python -m local.site.make_files

The PDF is written by hand: one built-in font, text in a single column, nothing compressed. That is enough for
an extractor to find real text in it, and needs no library.
"""

from __future__ import annotations

import struct
import textwrap
import zlib
from pathlib import Path

from local.site.catalogue import PAGES_DIR

SOURCE = Path(__file__).parent / "sources" / "annual-report.txt"

_LINES_PER_PAGE = 46
_PAGE_WIDTH, _PAGE_HEIGHT = 595, 842
_MARGIN = 64
_LEADING = 15


def pdf(source: str) -> bytes:
    """Return a PDF of the text: `#` and `##` lines are headings, other lines are paragraphs, wrapped."""
    lines = _laid_out(source)
    pages = [lines[start : start + _LINES_PER_PAGE] for start in range(0, len(lines), _LINES_PER_PAGE)]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R /Lang (en) >>",
        f"<< /Type /Pages /Count {len(pages)} /Kids [{kids}] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, page in enumerate(pages):
        objects += _page(page, content_object=5 + 2 * number)
    return _assembled(objects)


def png(size: int = 24) -> bytes:
    """Return a small square picture: a lantern-yellow disc on blue."""
    rows = bytearray()
    for y in range(size):
        rows.append(0)
        for x in range(size):
            inside = (2 * x - size + 1) ** 2 + (2 * y - size + 1) ** 2 < (size - 4) ** 2
            rows += bytes((240, 200, 60) if inside else (20, 40, 90))
    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    # Level 0 stores without compressing, so every zlib writes the same bytes.
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(bytes(rows), 0)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_png_chunk(kind, data) for kind, data in parts)


def _laid_out(source: str) -> list[tuple[int, str]]:
    """Return font size and text of every line; an empty line separates paragraphs."""
    lines: list[tuple[int, str]] = []
    for paragraph in source.strip().split("\n\n"):
        marks = len(paragraph) - len(paragraph.lstrip("#"))
        size, width = {0: (11, 84), 1: (18, 50), 2: (14, 64)}[marks]
        lines += [(size, line) for line in textwrap.wrap(paragraph.lstrip("# "), width)]
        lines.append((11, ""))
    return lines


def _page(lines: list[tuple[int, str]], content_object: int) -> list[bytes]:
    page = (
        f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {_PAGE_WIDTH} {_PAGE_HEIGHT}]"
        f" /Resources << /Font << /F1 3 0 R >> >> /Contents {content_object} 0 R >>"
    )
    shown = [f"/F1 {size} Tf ({_escaped(text)}) Tj T*" for size, text in lines]
    text = "\n".join(("BT", f"{_LEADING} TL", f"{_MARGIN} {_PAGE_HEIGHT - _MARGIN} Td", *shown, "ET"))
    stream = text.encode("cp1252")
    return [page.encode(), b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream)]


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _assembled(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table_at = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, table_at)
    return bytes(out)


def _png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def main() -> None:
    """Write both files among the pages."""
    (PAGES_DIR / "reports" / "annual-report.pdf").write_bytes(pdf(SOURCE.read_text()))
    (PAGES_DIR / "badge.png").write_bytes(png())


if __name__ == "__main__":
    main()
