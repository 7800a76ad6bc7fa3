"""Structure of a text in Markdown, and the choice of the places where its chunks end.

The choice depends on the text nearby: an edit moves the boundaries near it, and no others.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from zlib import crc32

from indexmill.chunking.ports import Marks

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


SENTENCE: Final = re.compile(
    r"[.!?\u2026\u3002\uff01\uff1f](?:(?<=[\u3002\uff01\uff1f])|[\"'\u201d\u2019)\]*_]{0,3}\s+(?![\sa-z]))"
)
"""The end of a sentence, up to the next one's first character."""
_LINE_END: Final = re.compile(r"\n\s*")
_WORD_END: Final = re.compile(r"[ \t]+")
VISIBLE: Final = re.compile(r"\S")
_BLOCK_COST, _ITEM_COST, _SENTENCE_COST, _LINE_COST, _WORD_COST = 0.0, 0.2, 0.4, 0.8, 1.5
"""What a boundary costs by its kind, beside its rank. A chunk costs 1, the beginning of a section nothing."""
_RANKS: Final = [3.5 * max(0.0, math.log(10 * (at + 1) / 256)) for at in range(256)]
"""What a boundary costs by the digest of the text around it: a tenth costs nothing, most are dear. So two
texts that differ in one place have the same boundaries soon before and after it."""
_FEW: Final = 31 << 8
"""Bits of a digest: one word in 32 has none of them, and such words alone may begin a chunk."""


class Boundaries:
    """Choice of the places where the chunks of one text end. Offsets are in characters, amounts in tokens.

    It is the cheapest choice: a chunk costs 1, a boundary what its kind and the text around it say. A chunk
    that continues across a heading beyond its first third ends at one of that level or a higher one.
    """

    def __init__(self, text: str, outline: Outline, marks: Marks, room: Callable[[int], int]) -> None:
        """`room` returns the tokens that a chunk from an offset on may have beside its context."""
        self._text = text
        self._outline = outline
        self._ends, self._tokens = marks.ends, marks.tokens
        self._room = room
        self._most = room(0)
        self._levels: dict[int, int] = {}
        """By offset: level of the headings that a chunk may begin with."""
        self._below: dict[int, int] = {}
        """By heading: where the text below it begins."""

    def chosen(self) -> list[int]:
        """Return the ends of the chunks, ascending; the last is the text's."""
        places = self._places()
        starts, cuts, counts, costs = zip(*places, strict=True)
        reach, lows = self._bounds(starts, counts)
        sums, previous, low = [0.0], [0], 0
        for at in range(1, len(places)):
            while low < at - 1 and reach[low] < counts[at]:
                low += 1
            first = max(low, lows[at])
            least = min(sums[first:at])
            previous.append(sums.index(least, first, at))
            sums.append(least + 1 + costs[at])
        found, at = [], len(places) - 1
        while at > 0:
            found.append(cuts[at])
            at = previous[at]
        return found[::-1]

    def _places(self) -> list[tuple[int, int, int, float]]:
        """Return where a chunk may begin, from the first visible character to the end of the text.

        Each has the offset where the chunk before would end, the tokens up to there, and what it costs.
        """
        kinds = dict.fromkeys(self._outline.items, _ITEM_COST)
        kinds |= dict.fromkeys(self._outline.blocks, _BLOCK_COST)
        for start, end in self._outline.wholes:
            kinds[start] = kinds[self._visible(end)] = _BLOCK_COST
        self._read_headings(kinds)
        first, length = self._visible(0), len(self._text)
        found = [(first, 0, 0, 0.0)]
        fifth, below, count = self._most // 5, first, 0
        for start in [*sorted(at for at in kinds if first < at < length), length]:
            mark = bisect_right(self._ends, start) - 1
            if self._tokens[mark] - count > fifth:
                found += self._between(below, count, start)
            cost = 0.0 if start in self._levels else kinds.get(start, 0.0) + _rank(self._text, start)
            below, count = self._below.get(start, start), self._tokens[mark]
            found.append((start, self._ends[mark], count, cost))
        return found

    def _read_headings(self, kinds: dict[int, float]) -> None:
        """Add headings to `kinds`, and leave out what follows one at once: it begins no chunk without it."""
        last = -1
        for heading in self._outline.headings:
            below = self._visible(heading.end)
            if self._below.get(last) == heading.start and self.count(last, below) <= self._most // 3:
                self._levels[last] = min(self._levels[last], heading.level)
                kinds.pop(heading.start, None)
            else:
                last = heading.start
                self._levels[last] = heading.level
                kinds[last] = 0.0
            self._below[last] = below
            whole = self._outline.whole_around(below + 1)
            if whole is None or not self._fits(below, whole[1]) or self._fits(last, whole[1]):
                kinds.pop(below, None)

    def _fits(self, start: int, end: int) -> bool:
        return self.count(start, end) <= self._room(start)

    def _between(self, low: int, count: int, high: int) -> list[tuple[int, int, int, float]]:
        """Return places between two that are far from each other; `count` is of tokens before the first."""
        most, room = self._most, 0
        if self._outline.whole_around(low + 1) is not None:
            room = self._room(low)  # a table or a line of code is whole where it fits
        steps = [
            (_LINE_END, room or most // 3, _LINE_COST),
            (_WORD_END, room or most // 2, _WORD_COST),
        ]
        return self._finer(
            low, count, high, steps if room else [(SENTENCE, most // 5, _SENTENCE_COST), *steps]
        )

    def _finer(
        self, low: int, count: int, high: int, steps: list[tuple[re.Pattern[str], int, float]]
    ) -> list[tuple[int, int, int, float]]:
        """Return places by the first step's pattern, and by the next steps where those are far apart."""
        if not steps:
            return self._any_marks(count, high)
        pattern, most, cost = steps[0]
        found: list[tuple[int, int, int, float]] = []
        if self.before(high) - count <= most:
            return found
        further = steps[1][1] if len(steps) > 1 else self._most // 2
        for one in pattern.finditer(self._text, low, high):
            at = one.end()
            if low < at < high and (pattern is not _WORD_END or _digest(self._text, at) & _FEW == 0):
                mark = bisect_right(self._ends, at) - 1
                if self._tokens[mark] - count > further:
                    found += self._finer(low, count, at, steps[1:])
                low, count = at, self._tokens[mark]
                found.append((at, self._ends[mark], count, cost + _rank(self._text, at)))
        return found + self._finer(low, count, high, steps[1:])

    def _any_marks(self, count: int, high: int) -> list[tuple[int, int, int, float]]:
        """Return places in a long text without spaces: there all are alike."""
        found: list[tuple[int, int, int, float]] = []
        while self.before(high) - count > self._most // 2:
            mark = bisect_right(self._tokens, count + self._most // 4)
            at, count = self._ends[mark], self._tokens[mark]
            if at < high:
                found.append((at, at, count, _WORD_COST))
        return found

    def _bounds(self, starts: Sequence[int], counts: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return by place how far a chunk from there may go, and from where one to there may come."""
        reach: list[int] = []
        lows: list[int] = []
        above: list[tuple[int, int]] = []
        """Headings that are open: level, and the first place of a chunk that may continue across it."""
        room = self._room(0)
        sections = [at for at, start in enumerate(starts) if start in self._levels]
        for at in [*sections, len(starts)]:
            lows += [above[-1][1] if above else 0] * (at - len(lows))
            reach += [count + room for count in counts[len(reach) : at]]
            if at < len(starts):
                level = self._levels[starts[at]]
                while above and above[-1][0] >= level:
                    above.pop()
                lows.append(min(above[-1][1], at - 1) if above else 0)
                reach.append(counts[at] + self._room(starts[at]))
                above.append((level, bisect_left(counts, counts[at] - self._most // 3, 0, at)))
                room = self._room(self._below[starts[at]])
        return reach, lows

    def _visible(self, position: int) -> int:
        found = VISIBLE.search(self._text, position)
        return found.start() if found else len(self._text)

    def overlap_start(self, start: int, end: int, overlap: int, spare: int) -> int:
        """Return where the chunk after [start, end) begins: at most `overlap` or `spare` tokens before.

        It begins with a heading, a line or a sentence if one begins there; else with a word, or at `end`
        where less than the overlap is spare. It never begins within a code block or table that ends there,
        nor with text from above a heading.
        """
        earliest = self._ends[bisect_left(self._tokens, self.before(end) - min(overlap, spare))]
        earliest = max(earliest, start + 1)
        if earliest >= end:
            return end
        headings = self._outline.headings_between(earliest, end - 1)
        if headings:
            return headings[-1].start
        whole = self._outline.whole_around(earliest)
        if whole is not None and whole[1] <= end:
            return whole[1]
        if self._text[earliest - 1] == "\n":
            return earliest
        line = self._text.find("\n", earliest, end) + 1
        sentence = SENTENCE.search(self._text, earliest, end)
        found = [at for at in (line, sentence.end() if sentence else 0) if at and self._text[at:end].strip()]
        if found or spare < overlap:
            return min(found, default=end)
        return self._text.find(" ", earliest, end) + 1 or earliest

    def before(self, position: int) -> int:
        """Return the tokens before a position."""
        at = bisect_right(self._ends, position) - 1
        return self._tokens[at] if at >= 0 else 0

    def count(self, start: int, end: int) -> int:
        """Return the tokens between two positions."""
        return self.before(end) - self.before(start)

    def last(self, start: int, budget: int) -> int:
        """Return the last mark that is at most `budget` tokens after `start`, or the first one after it."""
        at = bisect_right(self._tokens, self.before(start) + budget) - 1
        return self._ends[max(at, bisect_right(self._ends, start))]


def _digest(text: str, at: int) -> int:
    """Return a digest of the text around an offset."""
    return crc32(text[at - 16 if at > 16 else 0 : at + 24].encode())


def _rank(text: str, at: int) -> float:
    return _RANKS[crc32(text[at - 16 if at > 16 else 0 : at + 24].encode()) & 255]
