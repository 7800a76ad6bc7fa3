"""EPUB books for tests, packed as strip-nondeterminism packs: container.xml first, all parts deflated."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

_CONTAINER = """<?xml version="1.0"?><container version="1.0"
 xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile full-path="OEBPS/book.opf"
 media-type="application/oebps-package+xml"/></rootfiles></container>"""


def chapter(body: str, head: str = "<title>Chapter</title>") -> str:
    """Return a chapter in XHTML."""
    return (
        '<?xml version="1.0" encoding="utf-8"?>\n<!DOCTYPE html>\n<html xmlns="http://www.w3.org/1999/xhtml">'
        f"<head>{head}</head><body>{body}</body></html>"
    )


def book(
    chapters: Sequence[str | bytes],
    *,
    media_type: str = "application/xhtml+xml",
    properties: str = "",
    others: Mapping[str, str | bytes] | None = None,
    last: str = "mimetype",
    more: str = "",
    xmlns: str = "http://www.idpf.org/2007/opf",
) -> bytes:
    """Return a book whose chapters are c1.xhtml, c2.xhtml and so on; the part named `last` is packed last.

    `properties` are those of the first chapter in the manifest, `others` further parts, `more` further items
    of the manifest, whose ids x, y and z are in the spine.
    """
    names = [f"c{at}.xhtml" for at in range(1, len(chapters) + 1)]
    said = {names[0]: f' properties="{properties}"'} if properties else {}
    items = "".join(
        f'<item id="i-{name}" href="{name}" media-type="{media_type}"{said.get(name, "")}/>' for name in names
    )
    refs = [*(f"i-{name}" for name in names), *(ref for ref in "xyz" if f'id="{ref}"' in more)]
    spine = "".join(f'<itemref idref="{ref}"/>' for ref in refs)
    package = (
        f'<package xmlns="{xmlns}" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A book</dc:title><dc:language>en</dc:language>'
        f"</metadata><manifest>{items}{more}</manifest><spine>{spine}</spine></package>"
    )
    parts: dict[str, str | bytes] = {"META-INF/container.xml": _CONTAINER, "OEBPS/book.opf": package}
    parts |= {f"OEBPS/{name}": text for name, text in zip(names, chapters, strict=True)}
    parts |= {"mimetype": "application/epub+zip", **(others or {})}
    parts[last] = parts.pop(last)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as target:
        for name, text in parts.items():
            target.writestr(name, text)
    return made.getvalue()
