"""Cut positions: where a piece of text ends, and where the next one begins."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from typing import Final

from indexmill.chunking.outline import Outline
from indexmill.chunking.ports import Marks

_SENTENCE: Final = re.compile(r"[.!?\u2026][\"'\u201d\u2019)\]*_]{0,3}\s+(?![\sa-z])|[\u3002\uff01\uff1f]")
"""The end of a sentence, up to the next one's first character."""


class Cuts:
    """Cuts of one text. All offsets are in characters, all amounts in tokens."""

    def __init__(self, text: str, outline: Outline, marks: Marks) -> None:
        """`outline` and `marks` are those of `text`."""
        self._text = text
        self._outline = outline
        self._marks = marks

    def end(self, start: int, covered: int, budget: int) -> int:
        """Return the best end of a piece that begins at `start` and has at most `budget` tokens.

        The end is always beyond `covered`, also where one mark alone needs more than the budget.
        """
        limit = self._last_mark(start, budget)
        if limit <= covered:
            return self._mark_after(covered)
        if limit == len(self._text):
            return limit
        cut = self._preferred(start, covered, limit)
        cut = self._before_bare_heading(start, covered, cut)
        # A preferred cut is at a mark or next to white space; a mark is never inside a token.
        return self._mark_at_or_before(cut, covered)

    def overlap_start(self, start: int, end: int, overlap: int) -> int:
        """Return where the piece after [start, end) begins: at most `overlap` tokens before `end`.

        It begins with a heading, a line or a sentence if one begins there, else with a word; never within a
        code block or table that ends there, and never with text from above a heading.
        """
        earliest = max(self._earliest(end, overlap), start + 1)
        if earliest >= end:
            return end
        headings = self._outline.headings_between(earliest, end - 1)
        if headings:
            return headings[-1].start
        whole = self._outline.whole_around(earliest)
        if whole is not None and whole[1] <= end:
            return whole[1]
        return self._first_start(earliest, end)

    def _preferred(self, start: int, covered: int, limit: int) -> int:
        """Return the best place in (covered, limit]; pieces are half full unless structure asks for less."""
        third = max(covered, start + (limit - start) // 3) + 1
        half = max(covered, start + (limit - start) // 2) + 1
        headings = self._outline.headings_between(third, limit)
        if headings:
            return min(headings, key=lambda heading: (heading.level, -heading.start)).start
        whole = self._outline.whole_around(limit)
        if whole is not None and whole[0] > covered and self._tokens(*whole) <= self._tokens(start, limit):
            return whole[0]
        for starts in (self._outline.blocks, self._outline.items):
            at = bisect_right(starts, limit) - 1
            if at >= 0 and starts[at] >= half:
                return starts[at]
        line = self._text.rfind("\n", half, limit) + 1
        if whole is not None and line:
            return line
        sentences = [found.end() for found in _SENTENCE.finditer(self._text, half, limit)]
        return (sentences[-1] if sentences else 0) or line or self._text.rfind(" ", half, limit) + 1 or limit

    def _before_bare_heading(self, start: int, covered: int, cut: int) -> int:
        """Move the cut up so that no piece ends with a heading without its text."""
        for heading in reversed(self._outline.headings_between(max(start, covered) + 1, cut - 1)):
            if self._text[heading.end : cut].strip():
                break
            cut = heading.start
        return cut

    def _first_start(self, earliest: int, end: int) -> int:
        """Return the first beginning of a line, sentence or word in [earliest, end)."""
        if self._text[earliest - 1] == "\n":
            return earliest
        line = self._text.find("\n", earliest, end) + 1
        sentence = _SENTENCE.search(self._text, earliest, end)
        found = [at for at in (line, sentence.end() if sentence else 0) if at and self._text[at:end].strip()]
        return min(found, default=0) or self._text.find(" ", earliest, end) + 1 or earliest

    def _tokens_before(self, position: int) -> int:
        at = bisect_right(self._marks.ends, position) - 1
        return self._marks.tokens[at] if at >= 0 else 0

    def _tokens(self, start: int, end: int) -> int:
        return self._tokens_before(end) - self._tokens_before(start)

    def _last_mark(self, start: int, budget: int) -> int:
        """Return the last mark that is at most `budget` tokens after `start`."""
        at = bisect_right(self._marks.tokens, self._tokens_before(start) + budget) - 1
        return self._marks.ends[at] if at >= 0 else 0

    def _earliest(self, end: int, overlap: int) -> int:
        """Return the first mark that is at most `overlap` tokens before `end`."""
        return self._marks.ends[bisect_left(self._marks.tokens, self._tokens_before(end) - overlap)]

    def _mark_after(self, position: int) -> int:
        return self._marks.ends[bisect_right(self._marks.ends, position)]

    def _mark_at_or_before(self, cut: int, covered: int) -> int:
        """Return the mark at `cut` or the nearest before it, but beyond `covered`."""
        at = bisect_right(self._marks.ends, cut) - 1
        return (
            self._marks.ends[at] if at >= 0 and self._marks.ends[at] > covered else self._mark_after(covered)
        )
