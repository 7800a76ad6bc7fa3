"""Chunk worker: splits one document for a caller, or those of a batch of the chunk queue.

Every chunk is `text[start:end]` exactly; together they cover every character that is not white space.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.chunking.ports import Marks, Tokenizer
from indexmill.chunking.split import VISIBLE, Boundaries, Outline, outline
from indexmill.contracts.content import (
    CHUNK_LIST,
    CHUNKER,
    FIRST_CHUNKER,
    INLINE_LIMIT_BYTES,
    Chunk,
    ChunkSettings,
    SourceText,
)
from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, TransientError
from indexmill.contracts.messages import Chunked, ChunkTask, StageFailure, write
from indexmill.contracts.pipeline import BY_NAME
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.consumer.deliveries import (
    BatchReporter,
    Delivery,
    Outcome,
    Poison,
    RecordTimes,
    Wait,
    WorkerStage,
)
from indexmill.platform.time import Clock

_LONGEST_REST: Final = 2_000
"""Characters within a message; ten thousand chunks have as many between them."""
MAX_CHUNKS: Final = 10_000
_ESCAPE: Final = re.compile(r"\\[!-/:-@\[-`{-~]")
"""A backslash and the character that it escapes in Markdown."""
LOW: Final = 2
"""Tokens that are left free: at the edges of a piece a tokenizer may need one more than inside the text."""
_CONTEXT_SHARE: Final = 4
"""The context takes at most this part (1/n) of a chunk's tokens."""
_SEPARATOR: Final = " > "


@dataclass(frozen=True, slots=True)
class _Context:
    text: str
    tokens: int


def split(
    text: str, title: str | None, settings: ChunkSettings, tokenizer: Tokenizer, chunker: str = CHUNKER
) -> list[Chunk]:
    """Return the chunks of `text` in order, ordinals from 0, as that version of the chunker cuts it.

    Raises PermanentError: empty_content for a blank text, too_many_chunks beyond 10,000.
    """
    if not text or text.isspace():
        raise PermanentError(ErrorCode.EMPTY_CONTENT, "The document has no text.")
    if chunker == FIRST_CHUNKER:
        from indexmill.chunking.first_chunker import FirstSplitter

        return FirstSplitter(text, title, settings, tokenizer).run()
    return Splitter(text, title, settings, tokenizer).run()


class Splitter:
    """One run over one text."""

    def __init__(self, text: str, title: str | None, settings: ChunkSettings, tokenizer: Tokenizer) -> None:
        self._text = text
        self._tokenizer = tokenizer
        self._max = settings.max_tokens
        self._overlap = min(settings.overlap_tokens, settings.max_tokens // 2 - 1)
        self._title = " ".join((title or "").split())
        self._marks = _between_escapes(text, tokenizer.marks(text))
        if self._marks.tokens[-1] > MAX_CHUNKS * settings.max_tokens:
            raise too_many()
        self._outline: Outline = outline(text)
        self._contexts: dict[tuple[str, ...], _Context] = {}
        self._boundaries = Boundaries(text, self._outline, self._marks, self._room)

    def run(self) -> list[Chunk]:
        """Return the chunks in order."""
        chunks: list[Chunk] = []
        covered, begin = 0, self._visible(0)
        for cut in self._boundaries.chosen():
            while begin < cut:
                if len(chunks) == MAX_CHUNKS:
                    raise too_many()
                before = chunks[-1].start if chunks else -1
                chunk, covered = self._chunk(len(chunks), before, covered, begin, cut)
                chunks.append(chunk)
                begin = self._visible(covered)
        return chunks

    def _chunk(self, ordinal: int, before: int, covered: int, begin: int, cut: int) -> tuple[Chunk, int]:
        """Return the chunk of [begin, cut) with the end of the text before, and the offset where it ends.

        It ends earlier where it has too many tokens: its edges have more than the text, or no boundary fits.
        """
        budget, start = self._room(begin), begin
        spare = budget - self._boundaries.count(covered, cut)
        if before >= 0 and self._overlap > 0 and spare > 0 and not self._outline.is_heading(begin):
            again = self._boundaries.overlap_start(before, covered, self._overlap, spare)
            start = min(self._visible(again), begin)
        while True:
            if spare < 0:
                cut = self._boundaries.last(begin, budget)
            context = self._context(start)
            end = start + len(self._text[start:cut].rstrip())
            above = f"{context.text}\n\n" if context.text else ""
            tokens = self._tokenizer.count_part(self._text, self._marks, slice(start, end), above)
            excess = tokens - self._max
            if excess <= 0 or budget <= 0:
                text = self._text[start:end]
                chunk = Chunk(
                    ordinal=ordinal, text=text, context=context.text, start=start, end=end, tokens=tokens
                )
                return chunk, cut
            if start == begin:
                budget = min(budget, self._boundaries.count(covered, cut)) - excess
                spare = -1
            start = begin

    def _room(self, position: int) -> int:
        """Return the tokens of a chunk from `position` on without its context."""
        return self._max - LOW - self._context(position).tokens

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

    def _visible(self, position: int) -> int:
        found = VISIBLE.search(self._text, position)
        return found.start() if found else len(self._text)


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


def too_many() -> PermanentError:
    """Return the error for a document of more than 10,000 chunks."""
    return PermanentError(
        ErrorCode.TOO_MANY_CHUNKS,
        f"The document needs more than {MAX_CHUNKS:,} chunks.",
        hint="Split the document.",
    )


@dataclass(frozen=True, slots=True)
class ChunkDocuments:
    """The chunking use case. Keeps nothing between calls."""

    tokenizer: Tokenizer
    blobs: BlobStore

    def one(
        self, text: str, title: str | None, settings: ChunkSettings, chunker: str = CHUNKER
    ) -> list[Chunk]:
        """Return the ordered chunks of one text.

        Raises PermanentError: empty_content, too_many_chunks, parse_error for text that is not valid Unicode.
        """
        try:
            return split(text, title, settings, self.tokenizer, chunker)
        except UnicodeEncodeError as error:
            raise PermanentError(ErrorCode.PARSE_ERROR, "The text is not valid Unicode.") from error

    def task(self, task: ChunkTask, inline_limit: int) -> Chunked:
        """Return the chunks of `task`; those of more than `inline_limit` bytes of JSON by reference.

        A task with a `result_key` has its chunks inline: they are stored there as a whole.
        Raises the errors of `one`, PermanentError(content_missing, content_corrupt) and
        TransientError(storage_unavailable).
        """
        text = self._text(task)
        chunker = FIRST_CHUNKER if task.chunker == FIRST_CHUNKER else CHUNKER
        chunks = self.one(text, task.title, task.settings, chunker)
        made = Chunked(
            chunks=chunks, chunk_count=len(chunks), chunker=chunker, tokenizer=self.tokenizer.version
        )
        if task.result_key is None:
            made.source = self._source(text, chunks)
            data = CHUNK_LIST.dump_json(chunks)
            if len(data) > inline_limit:
                made.chunks = None
                made.chunks_ref = self.blobs.put(data, kind="chunks", content_type="application/json")
        return made

    def _source(self, text: str, chunks: list[Chunk]) -> SourceText | None:
        """Return what of the text is in no chunk; by reference what is too long to be white space alone."""
        source = SourceText.of(text, chunks)
        if source is None or len(source.rest) <= _LONGEST_REST:
            return source
        ref = self.blobs.put(source.rest.encode(), kind="chunks", content_type="text/plain; charset=utf-8")
        return source.model_copy(update={"rest": "", "rest_ref": ref})

    def _text(self, task: ChunkTask) -> str:
        if task.text_ref is None:
            return task.text or ""
        try:
            return self.blobs.get(task.text_ref).decode()
        except UnicodeDecodeError as error:
            raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored text is not UTF-8.") from error


_LOG: Final = logging.getLogger(__name__)
_STAGE: Final = WorkerStage(
    BY_NAME["chunking"],
    "The document stopped the worker each time it was split",
    keeps_jobless_failures=True,
)
_ENVELOPE_BYTES: Final = 4_000
"""What a message carries beside its chunks."""
_INLINE_LIMIT: Final = INLINE_LIMIT_BYTES - _ENVELOPE_BYTES
_DOCUMENT_GUESS_S: Final = 1.0
_STORE_AGAIN_S: Final = 5.0


class ChunkBatch:
    """A BatchUseCase[ChunkTask]: one document after the other, all results in one send."""

    def __init__(self, documents: ChunkDocuments, callbacks: Queue, clock: Clock) -> None:
        """`callbacks` is the Orchestrator's queue of results."""
        self._documents = documents
        self._callbacks = callbacks
        self._clock = clock
        self._times = RecordTimes(_DOCUMENT_GUESS_S)

    def __call__(self, deliveries: Sequence[Delivery[ChunkTask]]) -> list[Outcome]:
        """Return one outcome per delivery, in order; a failing document leaves the others alone."""
        if deliveries:
            self._times.begin(deliveries[0].deadline - self._clock.monotonic())
        reporter = BatchReporter(_STAGE, deliveries, self._callbacks, self._clock)
        for at, delivery in enumerate(deliveries):
            if delivery.is_poison:
                reporter.poison(at)
            elif not self._times.suffices(delivery.deadline - self._clock.monotonic()):
                reporter.out_of_time(at)
            else:
                self._split(at, delivery.message, reporter)
        return [self._dead(deliveries[at].message, each) for at, each in enumerate(reporter.finish())]

    def _split(self, at: int, task: ChunkTask, reporter: BatchReporter[ChunkTask]) -> None:
        started = self._clock.monotonic()
        reporter.begin(at)
        try:
            if task.job_id is None:
                self._store(task, self._made(task))
                reporter.success(at)
            else:
                chunked = self._documents.task(task, _INLINE_LIMIT)
                reporter.spent(at, bytes_stored=chunked.chunks_ref.size if chunked.chunks_ref else 0)
                reporter.success(at, chunked=chunked)
        except IndexmillError as error:
            reporter.error(at, error)
        except Exception as error:  # noqa: BLE001 - a defect met by one document must not reach its neighbours
            fields = {"job_id": task.job_id, "request_id": task.request_id}
            _LOG.exception("chunking failed unexpectedly", extra=fields)
            reporter.error(at, TransientError(ErrorCode.INTERNAL_ERROR, type(error).__name__))
        self._times.add(self._clock.monotonic() - started)

    def _dead(self, task: ChunkTask, outcome: Outcome) -> Outcome:
        """Store the failure of a task without a job before its message is dead-lettered."""
        if not isinstance(outcome, Poison):
            return outcome
        failure = StageFailure(code=outcome.reason, message="The text could not be split.")
        try:
            self._store(task, Chunked(failure=failure))
        except TransientError as error:
            # A try that failed for this very reason was the last one.
            return outcome if outcome.reason == error.code else Wait(_STORE_AGAIN_S, error.code)
        return outcome

    def _made(self, task: ChunkTask) -> Chunked:
        try:
            return self._documents.task(task, _INLINE_LIMIT)
        except PermanentError as error:
            return Chunked(failure=StageFailure(code=error.code, message=error.message))

    def _store(self, task: ChunkTask, made: Chunked) -> None:
        """Store the result as the object that the 202 named."""
        if task.result_key is not None:
            data = write(made).encode()
            self._documents.blobs.put_at(task.result_key, data, content_type="application/json")
