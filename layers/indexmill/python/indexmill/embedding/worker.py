"""Embed worker: embeds and publishes a batch of documents, each side effect once per batch.

Texts are embedded a request at a time, with progress; unfinished work is stored and resumed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, Trait, TransientError, codes
from indexmill.contracts.messages import Embedded, EmbedTask
from indexmill.contracts.pipeline import BY_NAME
from indexmill.embedding.documents import Work, groups, resolve
from indexmill.embedding.ports import Embedder, PublishOutcome, Vector, VectorCache, VectorIndex
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue
from indexmill.platform.consumer.deliveries import BatchReporter, Delivery, Outcome, RecordTimes, WorkerStage
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard, WorkProgress
from indexmill.platform.time import Clock

SLICE: Final = 256
"""Texts per step: as many as one request carries."""
_GUESS_S: Final = 2.0

OnStep = Callable[[Container[str]], None]


class OutOfTime(TransientError):
    """The invocation has no time for the rest."""

    def __init__(self) -> None:
        """No fault of the endpoint's or the document's."""
        super().__init__(ErrorCode.DEADLINE_EXCEEDED, "The rest is embedded later.")


def _times() -> RecordTimes:
    return RecordTimes(_GUESS_S)


@dataclass(frozen=True, slots=True)
class Slices:
    """Embeds as much as there is time for."""

    embedder: Embedder
    clock: Clock
    times: RecordTimes = field(default_factory=_times)

    def embed(
        self, texts: Mapping[str, str], *, timeout_s: float, on_step: OnStep | None = None
    ) -> tuple[dict[str, Vector], IndexmillError | None]:
        """Return vectors by key, each different text embedded once, and why they are not all there.

        `on_step` gets the texts that are done after each step but the last, behind which the end follows.
        """
        deadline = self.clock.monotonic() + timeout_s
        self.times.begin(timeout_s)
        unique = list(dict.fromkeys(texts.values()))
        by_text: dict[str, Vector] = {}
        stopped: IndexmillError | None = None
        for start in range(0, len(unique), SLICE):
            part, began = unique[start : start + SLICE], self.clock.monotonic()
            if start and not self.times.suffices(deadline - began):
                stopped = OutOfTime()
                break
            try:
                vectors = self.embedder.embed(part, timeout_s=deadline - began)
            except IndexmillError as error:
                stopped = error
                break
            self.times.add(self.clock.monotonic() - began)
            by_text.update(zip(part, vectors, strict=True))
            if on_step is not None and len(by_text) < len(unique):
                on_step(by_text)
        return {key: by_text[text] for key, text in texts.items() if text in by_text}, stopped


def progress_callback(
    group: Sequence[Work], texts: Mapping[str, str], board: ProgressBoard | None
) -> OnStep | None:
    """Return a callback that reports to `board` after each step; None for a group without long documents.

    `texts` is what has to be embedded, by chunk id; every other chunk is done already.
    """
    long = [work for work in group if work.task.job_id and len(work.chunks) > LONG_CHUNKS]
    return partial(_report, board, long, texts) if board is not None and long else None


def _report(
    board: ProgressBoard, long: Sequence[Work], texts: Mapping[str, str], embedded: Container[str]
) -> None:
    for work in long:
        pairs = zip(work.ids, work.chunks, strict=True)
        done = [chunk for key, chunk in pairs if key not in texts or texts[key] in embedded]
        size = sum(len(chunk.text.encode()) for chunk in done)
        progress = WorkProgress(work.task.attempt, len(work.chunks), len(done), size)
        board.put(work.task.job_id or "", progress)


_GROUP_CHUNKS: Final = 1_000
"""Chunks that are embedded and published together; bounds memory and what a deadline can waste."""
_STAGE: Final = WorkerStage(
    BY_NAME["embedding"],
    "Embedding did not survive this document",
    pauses=frozenset((ErrorCode.OPENAI_RATE_LIMIT, ErrorCode.EMBEDDING_UNAVAILABLE)),
    keeps_jobless_failures=True,
)
_OUTAGES, _OF_DOCUMENT = codes(Trait.OUTAGE), codes(Trait.OF_DOCUMENT)
_LEAST_TIME_S: Final = 5.0
"""With less than this left no further group is begun."""

Reporter = BatchReporter[EmbedTask]


@dataclass(slots=True)
class EmbedBatch:
    """The embed worker's use case: a `BatchUseCase[EmbedTask]`."""

    index: VectorIndex
    embedder: Embedder
    blobs: BlobStore
    callbacks: Queue
    vector_cache: VectorCache
    clock: Clock
    board: ProgressBoard | None = None
    """Where long documents show how far they are."""
    _slices: Slices = field(init=False)

    def __post_init__(self) -> None:
        self._slices = Slices(self.embedder, self.clock)

    def __call__(self, deliveries: Sequence[Delivery[EmbedTask]]) -> list[Outcome]:
        """Return one outcome per delivery, in order; the results are in the callback queue by then."""
        reporter = BatchReporter(_STAGE, deliveries, self.callbacks, self.clock)
        for group in groups(self._works(deliveries, reporter), _GROUP_CHUNKS):
            self._run(group, reporter)
        return reporter.finish()

    def _works(self, deliveries: Sequence[Delivery[EmbedTask]], reporter: Reporter) -> list[Work]:
        works: list[Work] = []
        for position, delivery in enumerate(deliveries):
            if delivery.is_poison:
                reporter.poison(position)
                continue
            try:
                if delivery.message.erases is not None:
                    self._erase(position, delivery.message, reporter)
                else:
                    works.append(resolve(position, delivery.message, self.blobs))
            except IndexmillError as error:
                reporter.error(position, error)
        return works

    def _erase(self, position: int, task: EmbedTask, reporter: Reporter) -> None:
        erased = self.index.erase(task.job_id or "", task.erases or [], task.generation)
        reporter.success(position, erased=erased)

    def _run(self, group: Sequence[Work], reporter: Reporter) -> None:
        deadline = min(reporter.deliveries[work.position].deadline for work in group)
        remaining = deadline - self.clock.monotonic()
        if remaining < _LEAST_TIME_S:
            for work in group:
                reporter.out_of_time(work.position)
            return
        space = self.embedder.space
        try:
            stored = self.index.stored(space, list({key: None for work in group for key in work.ids}))
        except IndexmillError as error:
            for work in group:
                reporter.error(work.position, error)
            return
        kept = self._cached(group, reporter)
        copied = self._copied(group, stored | kept.keys())
        kept |= copied
        stored = stored | copied.keys()
        texts = {key: text for work in group for key, text in work.missing(stored | kept.keys()).items()}
        # Half the time at most for the model, so that a hang leaves enough to publish and to report.
        vectors, stopped = self._slices.embed(
            texts, timeout_s=remaining / 2, on_step=progress_callback(group, texts, self.board)
        )
        vectors |= kept
        whole = [work for work in group if all(key in stored or key in vectors for key in work.ids)]
        if whole:
            self._publish(whole, vectors, stored, reporter)
        rest = [work for work in group if work not in whole]
        if stopped is not None:
            self._unfinished(rest, vectors, stopped, reporter, alone=len(group) == 1)

    def _copied(self, group: Sequence[Work], known: Container[str]) -> dict[str, Vector]:
        """Return vectors of texts that another document of the corpus has; without them all is embedded."""
        wanted = {
            key: (work.task.target, chunk)
            for work in group
            for key, chunk in zip(work.ids, work.chunks, strict=True)
            if key not in known
        }
        try:
            return self.index.copies(self.embedder.space, wanted) if wanted else {}
        except IndexmillError:
            return {}

    def _publish(
        self,
        works: Sequence[Work],
        vectors: Mapping[str, Vector],
        stored: set[str],
        reporter: Reporter,
    ) -> None:
        space = self.embedder.space
        versions = [work.version(space, vectors) for work in works]
        try:
            seen = self.index.publish(versions)
        except IndexmillError as error:
            if len(works) > 1 and is_of_one_document(error):
                # One document fails the batch: embed each by itself, so that the others succeed.
                for work in works:
                    self._publish([work], vectors, stored, reporter)
                return
            self._put_off(works, vectors, error, reporter)
            return
        paid: set[tuple[str, str, str]] = set()
        for work, version, one in zip(works, versions, seen, strict=True):
            missing = work.paid(stored, paid)
            reporter.spent(
                work.position,
                chunks=len(work.chunks),
                chunks_embedded=len(missing),
                chunks_removed=len(version.removed),
                tokens=sum(chunk.tokens for chunk in work.chunks),
                tokens_embedded=sum(
                    chunk.tokens for key, chunk in zip(work.ids, work.chunks, strict=True) if key in missing
                ),
            )
            embedded = Embedded(
                chunk_count=len(work.chunks),
                embedded=len(missing),
                model=space.model,
                dimension=space.dimension,
                published=one is PublishOutcome.PUBLISHED,
                superseded=one is PublishOutcome.SUPERSEDED,
                removed=len(version.removed),
                searchable_at=version.searchable_at,
            )
            reporter.success(work.position, embedded=embedded)

    def _unfinished(
        self,
        works: Sequence[Work],
        vectors: Mapping[str, Vector],
        stopped: IndexmillError,
        reporter: Reporter,
        *,
        alone: bool,
    ) -> None:
        if not alone and is_of_one_document(stopped):
            for work in works:
                self._run([work], reporter)
            return
        self._put_off(works, vectors, stopped, reporter)

    def _put_off(
        self,
        works: Sequence[Work],
        vectors: Mapping[str, Vector],
        why: IndexmillError,
        reporter: Reporter,
    ) -> None:
        """Store the vectors of an unfinished long document, so that its next delivery does not pay again."""
        for work in works:
            own = {key: vectors[key] for key in work.ids if key in vectors}
            if why.retryable and len(own) >= SLICE:
                self.vector_cache.put(self.embedder.space, work.task.message_id, own)
            if isinstance(why, OutOfTime):
                reporter.out_of_time(work.position)
            else:
                reporter.error(work.position, why)

    def _cached(self, group: Sequence[Work], reporter: Reporter) -> dict[str, Vector]:
        found: dict[str, Vector] = {}
        for work in group:
            comes_again = reporter.deliveries[work.position].receive_count > 1
            if comes_again and len(work.chunks) >= SLICE:
                found |= self.vector_cache.get(self.embedder.space, work.task.message_id)
        return found


def is_of_one_document(error: IndexmillError) -> bool:
    """Return whether one document of a batch may be to blame."""
    if error.code in _OUTAGES or error.code in _OF_DOCUMENT:
        return error.code in _OF_DOCUMENT
    return not error.retryable
