"""Decoding of bytes to text, with detection of wrong charset declarations."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_META: Final = re.compile(
    rb"<meta[^<>]{0,512}?charset\s{0,8}=\s{0,8}[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_META_WITHIN: Final = 4096
_SAMPLE: Final = 32_768
# Python knows codecs that are no charsets (base64, idna, utf_7): only these are believed. Browsers read the
# narrow labels on the left as the wider charset on the right, and so do pages.
_WIDER: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-9": "cp1254",
}
_CHARSETS: Final = re.compile(
    r"utf-8|utf-16(-le|-be)?|iso8859-\d{1,2}|cp(125[0-8]|866|874|932|949|950)|koi8-[ru]|gb18030|big5(hkscs)?"
    r"|shift_jis|euc_(jp|kr)|iso2022_jp|mac-(roman|cyrillic)|tis-620"
)

_SINGLE_BYTE: Final = re.compile(r"iso8859|cp(125|866|874)|koi8|mac|tis")


def decode(body: bytes, declared: str | None, *, markup: bool = False) -> str:
    """Return `body` as text: by byte order mark, by `declared`, by the page's own meta, or by its bytes.

    A declared charset that cannot decode the bytes is replaced by UTF-8 when that can. So is every
    single-byte charset, which decodes anything: text in one is never valid UTF-8 by accident. Undecodable
    bytes become U+FFFD. With `markup` a meta element counts. Raises nothing.
    """
    for bom, wide in _BOMS:
        if body.startswith(bom):
            return body[len(bom) :].decode(wide, "replace")
    named: str | None = _known(declared) or (_from_meta(body) if markup else None)
    for charset in ("utf-8", named) if named is None or _SINGLE_BYTE.match(named) else (named, "utf-8"):
        if charset is not None:
            try:
                return body.decode(charset)
            except UnicodeDecodeError:
                continue
    return body.decode(named or _guess(body), "replace")


def _known(label: str | None) -> str | None:
    """Return the Python name of a charset label, None for what is no charset."""
    if not label:
        return None
    try:
        name = codecs.lookup(label.strip().strip("\"'")[:40]).name
    except (LookupError, ValueError):
        return None
    name = _WIDER.get(name, name)
    return name if _CHARSETS.fullmatch(name) else None


def _from_meta(body: bytes) -> str | None:
    found = _META.search(body, 0, _META_WITHIN)
    name = _known(found.group(1).decode("ascii")) if found else None
    # A meta element that could be read as ASCII is in no 16-bit charset.
    return "utf-8" if name is not None and name.startswith("utf-16") else name


def _guess(body: bytes) -> str:
    from charset_normalizer import from_bytes  # 40 ms of import that few pages need

    best = from_bytes(body[:_SAMPLE]).best()
    return (_known(best.encoding) if best is not None else None) or "cp1252"
