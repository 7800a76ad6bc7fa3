"""Chunker of version 1, for pages whose text is that of a version which it cut: their chunks stay.

It fills one chunk after the other, so that an edit moves all boundaries behind it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from indexmill.chunking.ports import Marks, Tokenizer
from indexmill.chunking.split import SENTENCE, VISIBLE, Outline
from indexmill.chunking.worker import LOW, MAX_CHUNKS, Splitter, too_many
from indexmill.contracts.content import Chunk, ChunkSettings


class FirstSplitter(Splitter):
    """One run over one text."""

    def __init__(self, text: str, title: str | None, settings: ChunkSettings, tokenizer: Tokenizer) -> None:
        """As the one of today."""
        super().__init__(text, title, settings, tokenizer)
        self._cuts = Cuts(text, self._outline, self._marks)

    def run(self) -> list[Chunk]:
        """Return the chunks in order."""
        chunks: list[Chunk] = []
        start: int | None = self._seen(0)
        covered = 0
        while start is not None:
            if len(chunks) == MAX_CHUNKS:
                raise too_many()
            chunk, covered = self._filled(len(chunks), start, covered)
            chunks.append(chunk)
            following = self._seen(covered)
            if following is None:
                break
            start = self._next_start(chunk.start, covered, following)
        return chunks

    def _next_start(self, start: int, covered: int, following: int) -> int:
        """Return where the next chunk begins; a heading begins a chunk without overlap."""
        if self._overlap <= 0 or self._outline.is_heading(following):
            return following
        again = self._seen(self._cuts.overlap_start(start, covered, self._overlap))
        return following if again is None else min(again, following)

    def _filled(self, ordinal: int, start: int, covered: int) -> tuple[Chunk, int]:
        """Return the chunk that begins at `start`, and the offset up to which the text is covered by it."""
        context = self._context(start)
        budget = self._max - LOW - context.tokens
        while True:
            cut = self._cuts.end(start, max(covered, start), budget)
            end = start + len(self._text[start:cut].rstrip())
            before = f"{context.text}\n\n" if context.text else ""
            tokens = self._tokenizer.count_part(self._text, self._marks, slice(start, end), before)
            excess = tokens - self._max
            if excess <= 0 or budget <= 0:
                text = self._text[start:end]
                return Chunk(
                    ordinal=ordinal, text=text, context=context.text, start=start, end=end, tokens=tokens
                ), cut
            budget -= excess
            if budget <= 0 and start < covered:
                # Only new text fits: begin without what the previous chunk already has.
                start, budget = self._seen(covered) or covered, self._max - LOW - context.tokens

    def _seen(self, position: int) -> int | None:
        found = VISIBLE.search(self._text, position)
        return found.start() if found else None


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
        sentences = [found.end() for found in SENTENCE.finditer(self._text, half, limit)]
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
        sentence = SENTENCE.search(self._text, earliest, end)
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
