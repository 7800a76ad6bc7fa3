"""XHTML for an HTML parser: what the two read differently is rewritten, and nothing is refused.

An HTML parser takes `<script/>` for a start tag, and the rest of the page for its content. No XML parser is
used: many pages that say they are XHTML are not well-formed, and a DTD or an entity must never be loaded.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape, unescape
from typing import Final

_VOID: Final = frozenset(
    (
        *("area", "base", "basefont", "bgsound", "br", "col", "embed", "frame", "hr", "img", "input"),
        *("keygen", "link", "meta", "param", "source", "track", "wbr"),
    )
)
"""Elements that have no end tag in HTML."""
_DIFFERS: Final = ("/>", "?>", "]>", "</br", "xmlns:")
_PREFIX: Final = re.compile(
    r"\sxmlns:([A-Za-z_][\w.-]{0,40}+)\s*=\s*[\"']http://www\.w3\.org/"
    r"(?:1999/xhtml|1998/Math/MathML|2000/svg)[\"']"
)
_MAX_PREFIXES: Final = 10
# A value without quotes could end in the slash, and one with "<" is not XML: these tags stay as they are.
_ATTRIBUTES: Final = r"(?:\s++[^\s\"'<>/=]++(?:\s*+=\s*+(?:\"[^\"<]*+\"|'[^'<]*+'))?+)*+\s*+"
_DOCTYPE: Final = re.compile(r"<!DOCTYPE[^<>\[]*+([\[>])")
_DECLARED: Final = re.compile(r"\]\s*+>|[\"']|<!--|<\?")
"""The end of a DOCTYPE's declarations, or what begins a part of them that may have such an end."""
_SECTIONS: Final = {"<!--": "-->", "<![CDATA[": "]]>", "<?": "?>", '"': '"', "'": "'"}
_VALUE: Final = re.compile(r"<[A-Za-z_](?:[^\"'<>]|\"[^\"<]*+\"|'[^'<]*+')*+(?:\"[^\"<]*+|'[^'<]*+)")
"""A tag up to a place within the value of an attribute."""


def as_html(markup: str) -> str:
    """Return XHTML as HTML with the same elements and text.

    Empty elements get an end tag, CDATA sections become text; comments, processing instructions and the
    declarations of a DOCTYPE go; elements of the namespaces that HTML knows lose their prefix. From a section
    without an end on, all stays as it is. Raises nothing.
    """
    if not any(each in markup for each in _DIFFERS):
        return markup
    return "".join(_pieces(markup))


def _pieces(markup: str) -> Iterator[str]:
    token, at = _token(markup), 0
    while (found := token.search(markup, at)) is not None:
        start, end = found.span()
        yield markup[at:start]
        at = start
        opened, name, raw = found["section"], found["empty"], found["raw"]
        if (opened is not None or raw is not None) and _is_in_value(markup, start):
            yield found[0]
        elif opened is not None:
            end = _end(markup, start, opened)
            if end < 0:
                break
            if opened == "<![CDATA[":
                yield escape(markup[start + len(opened) : end - 3], quote=False)
            elif opened == "<!DOCTYPE":
                yield "<!DOCTYPE html>"
        elif name is not None:
            yield f"<{name}{found['has']}>" if name in _VOID else f"<{name}{found['has']}></{name}>"
        elif raw is not None:
            yield f"<{raw}{found['more']}>"
            text, end = _raw_text(markup, end, f"</{found['prefix'] or ''}{raw}")
            yield text
        else:
            yield found["slash"] or ""
        at = end
    yield markup[at:]


def _is_in_value(markup: str, at: int) -> bool:
    """Return whether a place is within the value of an attribute, where XML has no "<"."""
    return _VALUE.fullmatch(markup, max(markup.rfind("<", 0, at), 0), at) is not None


def _token(markup: str) -> re.Pattern[str]:
    """Return what matches the next place to rewrite; ordinary tags match only where they have a prefix."""
    prefixes = dict.fromkeys(_PREFIX.findall(markup)[:_MAX_PREFIXES]) if "xmlns:" in markup else {}
    prefix = "|".join(re.escape(each) + ":" for each in prefixes) or "(?!)"
    return re.compile(
        rf"(?P<section><!--|<!\[CDATA\[|<\?|<!DOCTYPE\b)"
        rf"|<(?:{prefix})?(?P<empty>[A-Za-z_][\w:.-]*+)(?P<has>{_ATTRIBUTES})/>"
        rf"|<(?P<prefix>{prefix})?(?P<raw>script|style)(?P<more>{_ATTRIBUTES})>"
        rf"|(?P<slash></?)(?:{prefix})(?=[A-Za-z_])|</br\s*+>"
    )


def _end(markup: str, start: int, opened: str) -> int:
    """Return where the section that begins at `start` ends, -1 if it does not."""
    if opened == "<!DOCTYPE":
        found = _DOCTYPE.match(markup, start)
        if found is None or found[1] == ">":
            return found.end() if found is not None else -1
        at = found.end()
        while at >= 0 and (found := _DECLARED.search(markup, at)) is not None:
            if found[0].startswith("]"):
                return found.end()
            at = _end(markup, found.start(), found[0])
        return -1
    closing = _SECTIONS[opened]
    at = markup.find(closing, start + len(opened))
    return at + len(closing) if at >= 0 else -1


def _raw_text(markup: str, at: int, closing: str) -> tuple[str, int]:
    """Return the text of a script or style sheet as HTML has it, and where its end tag begins.

    Text is no markup there, but for the end tag and comments.
    """
    parts: list[str] = []
    end = markup.find(closing, at)
    while end >= 0:
        section = markup.find("<![CDATA[", at, end)
        closed = markup.find("]]>", section) if section >= 0 else -1
        if closed < 0:
            parts.append(unescape(markup[at:end]))
            # A comment in HTML's script could hold its end tag.
            return "".join(parts).replace("</", "<\\/").replace("<!--", "<\\u0021--"), end
        parts += (unescape(markup[at:section]), markup[section + 9 : closed])
        at = closed + 3
        if at > end:
            end = markup.find(closing, at)
    return markup[at:], len(markup)
