"""Splitter of a text into ordered pieces with a maximum of tokens, along the structure of its Markdown.

Every piece is `text[start:end]` exactly; together they cover every character that is not white space.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Final

from indexmill.chunking.ports import Marks, Tokenizer
from indexmill.contracts.content import Chunk, ChunkSettings
from indexmill.contracts.errors import ErrorCode, PermanentError

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


MAX_CHUNKS: Final = 10_000
_ESCAPE: Final = re.compile(r"\\[!-/:-@\[-`{-~]")
"""A backslash and the character that it escapes in Markdown."""
_LOW: Final = 2
"""Tokens that are left free: at the edges of a piece a tokenizer may need one more than inside the text."""
_CONTEXT_SHARE: Final = 4
"""The context takes at most this part (1/n) of a chunk's tokens."""
_SEPARATOR: Final = " > "
_VISIBLE: Final = re.compile(r"\S")


@dataclass(frozen=True, slots=True)
class _Context:
    text: str
    tokens: int


def split(text: str, title: str | None, settings: ChunkSettings, tokenizer: Tokenizer) -> list[Chunk]:
    """Return the chunks of `text` in order, ordinals from 0.

    Raises PermanentError: empty_content for a blank text, too_many_chunks beyond 10,000.
    """
    if not text or text.isspace():
        raise PermanentError(ErrorCode.EMPTY_CONTENT, "The document has no text.")
    return _Splitter(text, title, settings, tokenizer).run()


class _Splitter:
    """One run over one text."""

    def __init__(self, text: str, title: str | None, settings: ChunkSettings, tokenizer: Tokenizer) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._max = settings.max_tokens
        self._overlap = min(settings.overlap_tokens, settings.max_tokens // 2 - 1)
        self._title = " ".join((title or "").split())
        self._marks = _between_escapes(text, tokenizer.marks(text))
        if self._marks.tokens[-1] > MAX_CHUNKS * settings.max_tokens:
            raise _too_many()
        self._outline: Outline = outline(text)
        self._cuts = Cuts(text, self._outline, self._marks)
        self._contexts: dict[tuple[str, ...], _Context] = {}

    def run(self) -> list[Chunk]:
        chunks: list[Chunk] = []
        start: int | None = self._visible(0)
        covered = 0
        while start is not None:
            if len(chunks) == MAX_CHUNKS:
                raise _too_many()
            chunk, covered = self._chunk(len(chunks), start, covered)
            chunks.append(chunk)
            following = self._visible(covered)
            if following is None:
                break
            start = self._next_start(chunk.start, covered, following)
        return chunks

    def _next_start(self, start: int, covered: int, following: int) -> int:
        """Return where the next chunk begins; a heading begins a chunk without overlap."""
        if self._overlap <= 0 or self._outline.is_heading(following):
            return following
        again = self._visible(self._cuts.overlap_start(start, covered, self._overlap))
        return following if again is None else min(again, following)

    def _chunk(self, ordinal: int, start: int, covered: int) -> tuple[Chunk, int]:
        """Return the chunk that begins at `start`, and the offset up to which the text is covered by it."""
        context = self._context(start)
        budget = self._max - _LOW - context.tokens
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
                start, budget = self._visible(covered) or covered, self._max - _LOW - context.tokens

    def _context(self, start: int) -> _Context:
        path = self._outline.path(start)
        found = self._contexts.get(path)
        if found is None:
            found = self._contexts[path] = self._fitted(path)
        return found

    def _fitted(self, path: tuple[str, ...]) -> _Context:
        """Drop the outermost titles, then the end of the last one, until the context leaves room for text."""
        parts = [self._title, *path] if self._title and path[:1] != (self._title,) else list(path)
        limit = self._max // _CONTEXT_SHARE
        while parts:
            text = _SEPARATOR.join(parts)
            tokens = self._tokenizer.count(f"{text}\n\n")
            if tokens <= limit:
                return _Context(text, tokens)
            if len(parts) > 1:
                parts.pop(0)
            else:
                parts = [shorter] if (shorter := text[: len(text) * 2 // 3].rstrip()) else []
        return _Context("", 0)

    def _visible(self, position: int) -> int | None:
        found = _VISIBLE.search(self._text, position)
        return found.start() if found else None


def _between_escapes(text: str, marks: Marks) -> Marks:
    r"""Return `marks` with each between a `\` and the character that it escapes before both instead."""
    if "\\" not in text:
        return marks
    within = {found.start() + 1 for found in _ESCAPE.finditer(text)}
    if within.isdisjoint(marks.ends):
        return marks
    ends: list[int] = []
    tokens: list[int] = []
    for end, count in zip(marks.ends, marks.tokens, strict=True):
        at = end - 1 if end in within else end
        if at > (ends[-1] if ends else 0):
            ends.append(at)
            tokens.append(count)
    return Marks(ends, tokens)


def _too_many() -> PermanentError:
    return PermanentError(
        ErrorCode.TOO_MANY_CHUNKS,
        f"The document needs more than {MAX_CHUNKS:,} chunks.",
        hint="Split the document.",
    )
