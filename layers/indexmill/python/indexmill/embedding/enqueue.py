"""Asynchronous embedding of a document's chunks: one message to the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.contracts.content import CHUNK_LIST, INLINE_LIMIT_BYTES, Chunk
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.http_embedding import EnqueueRequest, EnqueueResponse
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.contracts.messages import EmbedTask, write
from indexmill.embedding.targets import CanonicalUrl, Generations, chunks_of, target_of
from indexmill.platform.blobs import BlobStore
from indexmill.platform.queues import Queue


@dataclass(frozen=True, slots=True)
class EnqueueEmbed:
    """The asynchronous use case."""

    queue: Queue
    blobs: BlobStore
    generations: Generations
    canonical: CanonicalUrl
    make_id: Callable[[], str] = new_id

    def __call__(self, caller: CallerContext, request: EnqueueRequest, request_id: str) -> EnqueueResponse:
        """Put the work into the queue; when this returns, it is there.

        Raises CallerError (forbidden for a `job_id` from outside, corpus_name_invalid, the URL's own codes),
        TransientError (queue_unavailable, storage_unavailable, database_unavailable).
        """
        if request.job_id is not None and not caller.internal:
            raise CallerError(
                ErrorCode.FORBIDDEN,
                "Only internal callers may name a job to report to.",
                field="body.job_id",
                hint="Leave job_id out, or use POST /orchestrator/jobs.",
            )
        target = target_of(caller.caller_id, request.corpus_name, request.url, self.canonical)
        chunks = _ordered(request)
        task = EmbedTask(
            message_id=self.make_id(),
            job_id=request.job_id,
            attempt=request.attempt,
            request_id=request_id or None,
            target=target,
            generation=self.generations.next(),
            title=request.title,
            chunks=chunks,
            chunk_count=len(chunks),
        )
        if self.queue.send([self._body(task)]):
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The work could not be queued.")
        return EnqueueResponse(job_id=request.job_id, document_id=target.document_id, chunk_count=len(chunks))

    def _body(self, task: EmbedTask) -> str:
        body = write(task)
        if len(body.encode()) <= INLINE_LIMIT_BYTES:
            return body
        data = CHUNK_LIST.dump_json(task.chunks or [])
        task.chunks_ref = self.blobs.put(data, kind="chunks", content_type="application/json")
        task.chunks = None
        return write(task)


def _ordered(request: EnqueueRequest) -> list[Chunk]:
    if request.texts is not None:
        return chunks_of(request.texts)
    given = request.chunks or []
    return [Chunk.model_validate({**chunk.model_dump(), "ordinal": at}) for at, chunk in enumerate(given)]
