"""Chunk worker: splits one document for a caller, or those of a batch of the chunk queue."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.chunking.ports import Tokenizer
from indexmill.chunking.split import split
from indexmill.contracts.content import (
    CHUNK_LIST,
    CHUNKER,
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


@dataclass(frozen=True, slots=True)
class ChunkDocuments:
    """The chunking use case. Keeps nothing between calls."""

    tokenizer: Tokenizer
    blobs: BlobStore

    def one(self, text: str, title: str | None, settings: ChunkSettings) -> list[Chunk]:
        """Return the ordered chunks of one text.

        Raises PermanentError: empty_content, too_many_chunks, parse_error for text that is not valid Unicode.
        """
        try:
            return split(text, title, settings, self.tokenizer)
        except UnicodeEncodeError as error:
            raise PermanentError(ErrorCode.PARSE_ERROR, "The text is not valid Unicode.") from error

    def task(self, task: ChunkTask, inline_limit: int) -> Chunked:
        """Return the chunks of `task`; those of more than `inline_limit` bytes of JSON by reference.

        A task with a `result_key` has its chunks inline: they are stored there as a whole.
        Raises the errors of `one`, PermanentError(content_missing, content_corrupt) and
        TransientError(storage_unavailable).
        """
        text = self._text(task)
        chunks = self.one(text, task.title, task.settings)
        made = Chunked(
            chunks=chunks, chunk_count=len(chunks), chunker=CHUNKER, tokenizer=self.tokenizer.version
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
