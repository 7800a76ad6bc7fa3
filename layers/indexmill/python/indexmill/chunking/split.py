"""Splitter of a text into ordered pieces with a maximum of tokens, along its structure.

Every piece is `text[start:end]` exactly; together they cover every character that is not white space.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from indexmill.chunking.cuts import Cuts
from indexmill.chunking.outline import Outline, outline
from indexmill.chunking.ports import Tokenizer
from indexmill.contracts.content import Chunk, ChunkSettings
from indexmill.contracts.errors import ErrorCode, PermanentError

MAX_CHUNKS: Final = 10_000
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
        marks = tokenizer.marks(text)
        if marks.tokens[-1] > MAX_CHUNKS * settings.max_tokens:
            raise _too_many()
        self._outline: Outline = outline(text)
        self._cuts = Cuts(text, self._outline, marks)
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
            chunk = Chunk(
                ordinal=ordinal,
                text=self._text[start:end],
                context=context.text,
                start=start,
                end=end,
                tokens=0,
            )
            chunk.tokens = self._tokenizer.count(chunk.embedded_text)
            excess = chunk.tokens - self._max
            if excess <= 0 or budget <= 0:
                return chunk, cut
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


def _too_many() -> PermanentError:
    return PermanentError(
        ErrorCode.TOO_MANY_CHUNKS,
        f"The document needs more than {MAX_CHUNKS:,} chunks.",
        hint="Split the document.",
    )
