"""The structure of a Markdown text: headings, blocks, list items, and parts that belong together."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

_LINE: Final = re.compile(
    r"\n(?:[ ]{0,3}(?:(?P<level>\#{1,6})(?:[ \t]+(?P<title>[^\n]*))?$|(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)"
    r"|(?P<row>\|)|(?P<under>=+|-{2,})[ \t\r]*$)|[ \t]*(?P<item>[-*+]|\d{1,9}[.)])[ \t])",
    re.MULTILINE,
)
"""A line with a meaning. It begins with the newline before it: a fixed first character is found much faster
than the start of a line. So it is applied to a newline and the text, one ahead of the text's own offsets."""
_BLANK: Final = re.compile(r"\n[ \t\r]*\n\s*")
_CLOSING: Final = re.compile(r"[ \t]#+$")
_TITLE_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class Heading:
    """One heading line; `above` are the titles of its parent headings, outermost first."""

    start: int
    end: int
    level: int
    title: str
    above: tuple[str, ...]


@dataclass(slots=True)
class Outline:
    """Offsets in characters, ascending."""

    headings: list[Heading] = field(default_factory=list)
    heading_starts: list[int] = field(default_factory=list)
    """Beside `headings`."""
    blocks: list[int] = field(default_factory=list)
    """Where a block (paragraph, list, table, code) begins after a blank line."""
    items: list[int] = field(default_factory=list)
    """Where a list item begins."""
    wholes: list[tuple[int, int]] = field(default_factory=list)
    """Code blocks and tables: start and end. They never overlap."""

    def path(self, position: int) -> tuple[str, ...]:
        """Return the titles of the headings above `position`, outermost first."""
        at = bisect_left(self.heading_starts, position)
        if self.is_heading(position):
            return self.headings[at].above
        if at == 0:
            return ()
        last = self.headings[at - 1]
        return (*last.above, last.title) if last.title else last.above

    def is_heading(self, position: int) -> bool:
        """Return whether a heading begins at `position`."""
        at = bisect_left(self.heading_starts, position)
        return at < len(self.heading_starts) and self.heading_starts[at] == position

    def whole_around(self, position: int) -> tuple[int, int] | None:
        """Return the code block or table that a cut at `position` would divide."""
        at = bisect_left(self.wholes, (position,)) - 1
        if at >= 0 and self.wholes[at][0] < position < self.wholes[at][1]:
            return self.wholes[at]
        return None

    def headings_between(self, low: int, high: int) -> list[Heading]:
        """Return the headings that begin in [low, high]."""
        return self.headings[bisect_left(self.heading_starts, low) : bisect_right(self.heading_starts, high)]


def outline(text: str) -> Outline:
    """Read the structure in one pass over the lines that have any."""
    return _Reader(text).read()


class _Reader:
    """Keeps what must be known from the lines before."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found = Outline()
        self._stack: list[tuple[int, str]] = []
        self._fence: tuple[str, int] | None = None
        self._table_end = -2

    def read(self) -> Outline:
        for line in _LINE.finditer("\n" + self._text):
            kind = line.lastgroup
            if self._fence is not None:
                if kind == "info":
                    self._close_fence(line, *self._fence)
            elif kind == "item":
                self._found.items.append(line.start())
            elif kind == "info":
                self._fence = (line["fence"], line.start())
            elif kind == "row":
                self._row(line.start())
            elif kind == "under":
                self._underlined(line)
            else:
                self._heading(
                    line.start("level") - 1, line.end() - 1, len(line["level"]), line["title"] or ""
                )
        self._blocks()
        self._found.heading_starts = [heading.start for heading in self._found.headings]
        return self._found

    def _close_fence(self, line: re.Match[str], mark: str, start: int) -> None:
        if line["fence"].startswith(mark) and not line["info"].strip():
            self._found.wholes.append((start, line.end() - 1))
            self._fence = None

    def _row(self, start: int) -> None:
        end = self._text.find("\n", start)
        end = len(self._text) if end < 0 else end
        if self._table_end == start - 1:
            start = self._found.wholes.pop()[0]
        self._found.wholes.append((start, end))
        self._table_end = end

    def _underlined(self, line: re.Match[str]) -> None:
        """Read a heading that is a line of text with = or - signs under it."""
        before = self._text.rfind("\n", 0, max(line.start() - 1, 0)) + 1
        title = self._text[before : line.start()][:_TITLE_CHARS]
        last = self._found.headings[-1].end if self._found.headings else 0
        if title.strip() and before >= last and title.lstrip()[0] not in "|#>-*+=`":
            start = before + len(title) - len(title.lstrip())
            self._heading(start, line.end() - 1, 1 if line["under"][0] == "=" else 2, title)

    def _heading(self, start: int, end: int, level: int, title: str) -> None:
        title = _CLOSING.sub("", title[:_TITLE_CHARS].strip()).strip()
        while self._stack and self._stack[-1][0] >= level:
            self._stack.pop()
        above = tuple(text for _, text in self._stack if text)
        self._found.headings.append(Heading(start, end, level, title, above))
        self._stack.append((level, title))

    def _blocks(self) -> None:
        found = self._found
        starts = (gap.end() for gap in _BLANK.finditer(self._text))
        found.blocks = [start for start in starts if found.whole_around(start) is None]
