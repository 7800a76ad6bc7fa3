"""Escapes in the Markdown of a web page: what is text in the page is no markup in its Markdown.

A page may show `<img onerror=…>` or `[click](javascript:…)` as text. In Markdown both would be live, so their
first characters are escaped where the Markdown is no code. So are backticks of the text in such a page: they
would make code of its text, and text of its code.
"""

from __future__ import annotations

import re
from typing import Final

from selectolax.lexbor import LexborNode

_TICK: Final = "\ufdd1"
"""In place of a backtick of the text until it is escaped; no character."""
_CODE: Final = frozenset(("pre", "code", "kbd", "samp", "tt"))
_FENCE: Final = re.compile(r"[\s>*+\d.)-]*(`{3,})([^`]*)$")
_TOKEN: Final = re.compile(r"(\\*)(?:(?P<code>(`+)(?!`).*?(?<!`)\3(?!`))|(?P<mark><(?=[A-Za-z/!?])|\[|\]))")
_LINE_START: Final = re.compile(r"[\s>*+\d.)-]*")


def set_ticks_aside(part: LexborNode, html: str) -> bool:
    """Mark the backticks in the text of `part` when its HTML may need escapes; return whether."""
    if "`" not in html or not ("&lt;" in html or "]" in html):
        return False
    for node in list(part.traverse(include_text=True)):
        if node.tag == "-text" and "`" in (text := node.text(deep=False)) and not _is_code(node):
            node.replace_with(text.replace("`", _TICK))
    return True


def escape_markup(markdown: str) -> str:
    r"""Return `markdown` with `\` before what would be an HTML tag or begin a link or an image."""
    if _may_live(markdown):
        markdown = "\n".join(_escaped(markdown.split("\n")))
    return markdown.replace(_TICK, "\\`")


def _is_code(node: LexborNode) -> bool:
    above = node.parent
    while above is not None:
        if above.tag in _CODE:
            return True
        above = above.parent
    return False


def _escaped(lines: list[str]) -> list[str]:
    """Escape paragraph by paragraph: a fenced block is code, and no link goes over an empty line."""
    done: list[str] = []
    paragraph: list[str] = []
    fence = ""
    for line in lines:
        mark = _FENCE.match(line) if "```" in line else None
        if fence:
            done.append(line)
            if mark is not None and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark is not None or not line:
            done += _paragraph(paragraph)
            paragraph = []
            done.append(line)
            fence = mark[1] if mark is not None else ""
        else:
            paragraph.append(line)
    return done + _paragraph(paragraph)


def _paragraph(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    if not _may_live(text):
        return lines
    done: list[str] = []
    at = 0
    for start, before in sorted(_places(text)):
        # Backslashes before it are pairs; an odd one of the text is doubled, so that it does not escape ours.
        done += text[at:start], "\\" * (before + 1 if before % 2 else 1)
        at = start
    return ("".join(done) + text[at:]).split("\n")


def _places(text: str) -> list[tuple[int, int]]:
    """Return where something is escaped, and how many backslashes of the text are before it."""
    places: list[tuple[int, int]] = []
    opened: list[tuple[int, int]] = []
    for found in _TOKEN.finditer(text):
        before, start = len(found[1]), found.end(1)
        follows = text[start + 1 : start + 2]
        if found["code"] is not None:
            if before % 2:
                places.append((start, 0))
        elif found["mark"] == "<":
            places.append((start, before))
        elif found["mark"] == "[":
            opened.append((start, before))
        elif follows == "(":
            places += opened
            opened = []
        elif opened:
            last = opened.pop()
            line = text.rfind("\n", 0, last[0]) + 1
            if follows == ":" and _LINE_START.fullmatch(text, line, last[0]):
                places.append(last)
    return places


def _may_live(text: str) -> bool:
    return "<" in text or "](" in text or "]:" in text
