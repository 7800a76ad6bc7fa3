"""PDF files written by hand: no library of ours writes one."""

from __future__ import annotations

import io


def pdf(*pages: str, beside: bytes = b"") -> bytes:
    """A PDF with one line of Helvetica per page, and `beside` in an object that no page shows."""
    kids = " ".join(f"{4 + 2 * at} 0 R" for at in range(len(pages)))
    objects = [
        "<</Type/Catalog/Pages 2 0 R>>",
        f"<</Type/Pages/Count {len(pages)}/Kids[{kids}]>>",
        "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    for at, text in enumerate(pages):
        stream = f"BT /F 12 Tf 72 700 Td ({text}) Tj ET"
        resources = "/Resources<</Font<</F 3 0 R>>>>"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]{resources}/Contents {5 + 2 * at} 0 R>>"
        )
        objects.append(f"<</Length {len(stream)}>>stream\n{stream}\nendstream")
    out = io.BytesIO(b"%PDF-1.4\n")
    out.seek(0, io.SEEK_END)
    offsets = []
    for number, text in enumerate(objects, 1):
        offsets.append(out.tell())
        out.write(f"{number} 0 obj{text}endobj\n".encode())
    if beside:
        offsets.append(out.tell())
        out.write(f"{len(objects) + 1} 0 obj<</Length {len(beside)}>>stream\n".encode())
        out.write(beside + b"\nendstream endobj\n")
    start = out.tell()
    out.write(f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n".encode())
    out.writelines(f"{offset:010d} 00000 n \n".encode() for offset in offsets)
    out.write(f"trailer<</Size {len(offsets) + 1}/Root 1 0 R>>\nstartxref\n{start}\n%%EOF".encode())
    return out.getvalue()
