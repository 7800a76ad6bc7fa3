"""Bytes to clean text: charset, with detection of wrong declarations, no invisible characters; titles."""

from __future__ import annotations

import codecs
import re
from typing import Final

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDE_STARTS: Final = {
    **dict.fromkeys((b"<\0!\0", b"<\0h\0", b"<\0H\0", b"<\0?\0"), "utf-16-le"),
    **dict.fromkeys((b"\0<\0!", b"\0<\0h", b"\0<\0H", b"\0<\0?"), "utf-16-be"),
}
"""First bytes of markup in UTF-16 without a byte order mark."""
_META: Final = re.compile(
    rb"<meta[^<>]{0,512}?charset\s{0,8}=\s{0,8}[\"']?([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE
)
_META_WITHIN: Final = 4096
_XML: Final = re.compile(rb"<\?xml\s[^<>]{0,200}?encoding\s{0,8}=\s{0,8}[\"']([A-Za-z0-9_.:-]{1,40})[\"']")
_SAMPLE: Final = 32_768
_PIECE: Final = re.compile(rb"[^<>\r\n]+")
_FEW: Final = 10
"""Characters that are right for one that is wrong, in text that is damaged and not of another charset."""
_SYMBOL: Final = re.compile(
    rb"(?:(?<![A-Za-z\x80-\xff])[\x80\xa1-\xbf\xd7]|[\x85\x91-\x97\x99\xa9\xae\xb0\xb2])"
    rb"(?![\x80-\xff])"
)
"""Of windows-1252: a sign before a number or alone, or punctuation, where other charsets have letters."""
_SEQUENCE: Final = re.compile(rb"[\x80-\xff]+")
_SHORT: Final = 60
_SELDOM: Final = 0.012
"""Share of bytes beyond ASCII in English with a few foreign words; other languages have more."""
_ISO_2022_JP: Final = b"\x1b$"
# Python knows codecs that are no charsets (base64, idna, utf_7): only these are believed. Browsers read the
# narrow labels on the left as the wider charset on the right, and so do pages. No page is in the newer two.
_WIDER: Final = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "iso8859-9": "cp1254",
    "euc_jis_2004": "euc_jp",
    "shift_jis_2004": "shift_jis",
}
_CHARSETS: Final = re.compile(
    r"utf-8|utf-16(-le|-be)?|iso8859-\d{1,2}|cp(125[0-8]|866|874|932|949|950)|koi8-[ru]|gb18030|big5(hkscs)?"
    r"|shift_jis|euc_(jp|kr)|iso2022_jp|mac-(roman|cyrillic)|tis-620"
)

_SINGLE_BYTE: Final = re.compile(r"iso8859|cp(125|866|874)|koi8|mac|tis")


def decode(body: bytes, declared: str | None, *, markup: bool = False) -> str:
    """Return `body` as text: by byte order mark, by `declared`, by what it says itself, or by its bytes.

    A declared charset that cannot decode the bytes is replaced by UTF-8 when that can. So is every
    single-byte charset, which decodes anything: text in one is never valid UTF-8 by accident. Undecodable
    bytes become U+FFFD. With `markup` an XML declaration and a meta element count. Raises nothing.
    """
    return _decoded(body, declared, markup=markup)[0]


def misread(body: bytes, declared: str | None, *, markup: bool = False) -> str | None:
    """Return the charset that `decode` used if some bytes are none of it; None if all are."""
    return _decoded(body, declared, markup=markup)[1]


def _decoded(body: bytes, declared: str | None, *, markup: bool) -> tuple[str, str | None]:
    """Return the text, and its charset if that could not decode all bytes."""
    for bom, wide in _BOMS:
        if body.startswith(bom):
            return _strict_or_replaced(body[len(bom) :], wide)
    if markup and (unmarked := WIDE_STARTS.get(body[:4])) is not None:
        return _strict_or_replaced(body, unmarked)
    named: str | None = _known(declared) or (_own(body) if markup else None)
    tried = ("utf-8", named) if named is None or _SINGLE_BYTE.match(named) else (named, "utf-8")
    # Its bytes are those of ASCII, so UTF-8 would decode them.
    for charset in ("iso2022_jp", *tried) if named is None and _ISO_2022_JP in body else tried:
        if charset is not None:
            try:
                return body.decode(charset), None
            except UnicodeDecodeError:
                continue
    return _strict_or_replaced(body, named or _guess(body))


def _strict_or_replaced(body: bytes, charset: str) -> tuple[str, str | None]:
    try:
        return body.decode(charset), None
    except UnicodeDecodeError:
        return body.decode(charset, "replace"), charset


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


def _own(body: bytes) -> str | None:
    found = _XML.match(body) or _META.search(body, 0, _META_WITHIN)
    name = _known(found.group(1).decode("ascii")) if found else None
    # What could be read as ASCII is in no 16-bit charset.
    return "utf-8" if name is not None and name.startswith("utf-16") else name


def _guess(body: bytes) -> str:
    """Return the charset that the bytes beyond ASCII are most likely in."""
    sample = _sample(body)
    as_utf8 = sample.decode("utf-8", "replace")
    wrong = as_utf8.count("\ufffd")
    if sum(each > "\x7f" for each in as_utf8) - wrong > _FEW * wrong:
        return "utf-8"
    if _has_few(sample):
        return "cp1252"
    import chardet  # 200 ms of import that few pages need

    return _known(chardet.detect(sample, compat_names=False)["encoding"]) or "cp1252"


def _has_few(sample: bytes) -> bool:
    """Return whether bytes beyond ASCII are single, and too few, or too clearly signs, to name a language."""
    odd = _SEQUENCE.findall(sample)
    if max(map(len, odd), default=0) > 1:
        return False
    if len(odd) <= _SELDOM * len(sample) or (len(odd) <= _SHORT // 20 and len(sample) < _SHORT):
        return True
    return _SYMBOL.sub(b"", sample).isascii()


def _sample(body: bytes) -> bytes:
    """Return the first texts and attributes that are not ASCII: what is around them says nothing."""
    found: list[bytes] = []
    size = 0
    for each in _PIECE.finditer(body):
        piece = each.group()
        if not piece.isascii():
            found.append(piece)
            size += len(piece)
            if size >= _SAMPLE:
                break
    return b"\n".join(found)[:_SAMPLE]


MAX_TITLE: Final = 500

# Control characters except tab and line feed; soft hyphen, zero-width space, word joiner, byte order mark,
# direction marks and overrides, line separators, tags. The zero-width (non-)joiners shape Persian, Indic and
# emoji text, so a body keeps them.
_UNSEEN_CLASS: Final = (
    "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f"
)
_UNSEEN: Final = re.compile(f"[{_UNSEEN_CLASS}]")
UNSEEN_AFTER_TICK: Final = re.compile(f"`[{_UNSEEN_CLASS}]+")
_UNSEEN_IN_TITLE: Final = re.compile(f"[{_UNSEEN_CLASS}\u200c\u200d]")
_UNSEEN_ASCII: Final = dict.fromkeys((*range(9), *range(11, 32), 127))
_BLANK_LINES: Final = re.compile(r"\n{3,}")
_TRAILING: Final = (" \n", "\t\n")


def clean_text(text: str) -> str:
    """Return `text` without unseen characters, trailing blanks and runs of empty lines."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = text.translate(_UNSEEN_ASCII) if text.isascii() else _UNSEEN.sub("", text)
    if any(mark in text for mark in _TRAILING):
        text = "\n".join([line.rstrip() for line in text.split("\n")])
    return (_BLANK_LINES.sub("\n\n", text) if "\n\n\n" in text else text).strip()


def clean_title(text: str | None) -> str | None:
    """Return `text` as one line of at most 500 characters; None when nothing is left."""
    if not text:
        return None
    line = " ".join(_UNSEEN_IN_TITLE.sub(" ", text[: 4 * MAX_TITLE]).split())
    return line[:MAX_TITLE].rstrip() or None


_HEADING: Final = re.compile(r"#{1,6}[ \t]+(.*)")
_FENCES: Final = ("```", "~~~")


def read_markdown(text: str) -> tuple[str, str | None]:
    """Return the text and its first heading, or its first line when it has none."""
    clean = clean_text(text)
    fenced = False
    for line in clean.split("\n"):
        if line.lstrip().startswith(_FENCES):
            fenced = not fenced
        elif not fenced and (found := _HEADING.match(line)):
            return clean, clean_title(found.group(1).rstrip("# \t"))
    return clean, _first_line(clean)


def read_text(text: str) -> tuple[str, str | None]:
    """Return the text and its first line."""
    clean = clean_text(text)
    return clean, _first_line(clean)


def _first_line(clean: str) -> str | None:
    return clean_title(clean.split("\n", 1)[0])
