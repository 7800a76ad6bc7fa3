"""Embed and publish a batch of documents, doing each side effect once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError
from indexmill.contracts.messages import Embedded, EmbedTask, StageFailure
from indexmill.embedding.ports import Embedder, VectorIndex
from indexmill.embedding.reports import Reports
from indexmill.embedding.vectors import vectors_of
from indexmill.embedding.work import Work, groups, resolve
from indexmill.platform.blobs import BlobStore
from indexmill.platform.clock import Clock
from indexmill.platform.deliveries import Delivery, Outcome
from indexmill.platform.queues import Queue
from indexmill.platform.retry import RetryPolicy

_GROUP_CHUNKS: Final = 1_000
"""Chunks that are embedded and published together; bounds memory and what a deadline can waste."""
_POLICY: Final = RetryPolicy(max_retries=5)
_LEAST_TIME_S: Final = 5.0
"""With less than this left no further group is begun."""
_BY_ONE_DOCUMENT: Final = frozenset((ErrorCode.EMBEDDING_INVALID, ErrorCode.EMBEDDING_INCOMPLETE))
"""Transient errors that one document's text can cause."""


@dataclass(frozen=True, slots=True)
class EmbedBatch:
    """The embed worker's use case: a `BatchUseCase[EmbedTask]`."""

    index: VectorIndex
    embedder: Embedder
    blobs: BlobStore
    callbacks: Queue
    clock: Clock
    policy: RetryPolicy = _POLICY

    def __call__(self, deliveries: Sequence[Delivery[EmbedTask]]) -> list[Outcome]:
        """Handle all deliveries; the outcomes are in their order, and every job's report is on its way."""
        reports = Reports(deliveries, self.callbacks, self.policy, self.clock, self.clock.monotonic())
        for group in groups(self._works(deliveries, reports), _GROUP_CHUNKS):
            self._run(group, reports)
        return reports.send()

    def _works(self, deliveries: Sequence[Delivery[EmbedTask]], reports: Reports) -> list[Work]:
        works: list[Work] = []
        for position, delivery in enumerate(deliveries):
            if delivery.receive_count > self.policy.max_tries:
                # Every orderly try ends with a report, so one more delivery means that a try never ended.
                reports.failure(position, _poison(delivery.receive_count))
                continue
            try:
                works.append(resolve(position, delivery.message, self.blobs))
            except IndexmillError as error:
                reports.error(position, error)
        return works

    def _run(self, group: Sequence[Work], reports: Reports) -> None:
        deadline = min(reports.deliveries[work.position].deadline for work in group)
        remaining = deadline - self.clock.monotonic()
        if remaining < _LEAST_TIME_S:
            for work in group:
                reports.untouched(work.position)
            return
        try:
            # Half the time at most for the model, so that a hang leaves enough to publish and to report.
            found = self._published(group, timeout_s=remaining / 2)
        except IndexmillError as error:
            if len(group) > 1 and (isinstance(error, PermanentError) or error.code in _BY_ONE_DOCUMENT):
                # One document spoils the batch: each by itself, so that its neighbours go through.
                for work in group:
                    self._run([work], reports)
                return
            for work in group:
                reports.error(work.position, error)
        else:
            for work, embedded in zip(group, found, strict=True):
                reports.success(work.position, embedded)

    def _published(self, group: Sequence[Work], timeout_s: float) -> list[Embedded]:
        space = self.embedder.space
        every_id = list({chunk_id: None for work in group for chunk_id in work.ids})
        stored = self.index.stored(space, every_id)
        missing = [work.missing(stored) for work in group]
        texts = {chunk_id: text for one in missing for chunk_id, text in one.items()}
        vectors = vectors_of(self.embedder, texts, timeout_s=timeout_s)
        flags = self.index.publish([work.version(space, vectors) for work in group])
        return [
            Embedded(
                chunk_count=len(work.chunks),
                embedded=len(new),
                model=space.model,
                dimension=space.dimension,
                published=flag,
            )
            for work, new, flag in zip(group, missing, flags, strict=True)
        ]


def _poison(receive_count: int) -> StageFailure:
    return StageFailure(
        code=ErrorCode.POISON_MESSAGE,
        message="Embedding did not survive this document",
        cause=ErrorCode.WORKER_CRASHED,
        tries=receive_count,
    )
