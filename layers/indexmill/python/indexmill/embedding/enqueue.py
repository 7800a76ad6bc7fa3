"""Asynchronous embedding of a document's chunks: one message to the worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.contracts.content import (
    CHUNK_LIST,
    INLINE_LIMIT_BYTES,
    Chunk,
    SourceText,
)
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.http_embedding import EnqueueRequest, EnqueueResponse
from indexmill.contracts.identity import CallerContext, CorpusIsolation, hidden_characters, new_id
from indexmill.contracts.messages import EmbedTask, Target, write
from indexmill.embedding.targets import (
    CanonicalUrl,
    ChunkQuota,
    Generations,
    JobTargets,
    chunks_of,
    target_of,
)
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue


@dataclass(frozen=True, slots=True)
class EnqueueEmbed:
    """The asynchronous use case."""

    queue: Queue
    blobs: BlobStore
    generations: Generations
    jobs: JobTargets
    canonical: CanonicalUrl
    quota: ChunkQuota
    make_id: Callable[[], str] = new_id
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def __call__(self, caller: CallerContext, request: EnqueueRequest, request_id: str) -> EnqueueResponse:
        """Put the work into the queue; when this returns, it is there.

        With a `job_id` the document is that job's, in the corpus of the job's caller.
        Raises CallerError (forbidden for a `job_id` from outside, not_found and invalid_transition for a job
        that is not being embedded, corpus_name_invalid, the URL's own codes, quota_exceeded),
        TransientError (queue_unavailable, storage_unavailable, database_unavailable).
        """
        if request.job_id is not None and not caller.internal:
            raise CallerError(
                ErrorCode.FORBIDDEN,
                "Only internal callers may name a job to report to.",
                field="body.job_id",
                hint="Leave job_id out, or use POST /orchestrator/jobs.",
            )
        if request.job_id is None:
            target, generation, held = target_of(
                caller.caller_id,
                request.corpus_name,
                request.url,
                self.canonical,
                self.isolation,
                self.generations,
            )
            self.quota.check_corpus(caller, held)
        else:
            target, generation = self._of_job(request.job_id, request)
        chunks, source = _ordered(request)
        with self.quota.used(caller, len(chunks), "body.texts" if request.texts else "body.chunks"):
            self._send(request, request_id, target, generation, chunks, source)
        return EnqueueResponse(
            job_id=request.job_id,
            document_id=target.document_id,
            chunk_count=len(chunks),
            hidden_characters=sum(hidden_characters(chunk.embedded_text) for chunk in chunks),
        )

    def _send(
        self,
        request: EnqueueRequest,
        request_id: str,
        target: Target,
        generation: int,
        chunks: list[Chunk],
        source: SourceText | None,
    ) -> None:
        task = EmbedTask(
            message_id=self.make_id(),
            job_id=request.job_id,
            attempt=request.attempt,
            request_id=request_id or None,
            target=target,
            generation=generation,
            title=request.title,
            chunks=chunks,
            chunk_count=len(chunks),
            source=source,
        )
        if self.queue.send([self._body(task)], [target.caller_id]):
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The work could not be queued.")

    def _of_job(self, job_id: str, request: EnqueueRequest) -> tuple[Target, int]:
        """Return the job's document and the generation that the job may publish: a cancel fences it out."""
        job = self.jobs.find(job_id)
        if job is None:
            raise CallerError(ErrorCode.NOT_FOUND, "No such job.")
        if job.generation is None or (job.status, job.attempt) != ("embedding", request.attempt):
            raise CallerError(
                ErrorCode.INVALID_TRANSITION,
                f"The job is {job.status}, attempt {job.attempt}; it takes chunks while it is embedded.",
                field="body.attempt" if job.status == "embedding" else "body.job_id",
            )
        if request.url != job.target.url and self.canonical(request.url) != job.target.url:
            raise CallerError(ErrorCode.VALIDATION_ERROR, "The job is of another URL.", field="body.url")
        if request.corpus_name not in (None, job.target.corpus_name):
            raise CallerError(
                ErrorCode.VALIDATION_ERROR, "The job is of another corpus.", field="body.corpus_name"
            )
        return job.target, job.generation

    def _body(self, task: EmbedTask) -> str:
        body = write(task)
        if len(body.encode()) <= INLINE_LIMIT_BYTES:
            return body
        data = CHUNK_LIST.dump_json(task.chunks or [])
        task.chunks_ref = self.blobs.put(data, kind="chunks", content_type="application/json")
        task.chunks = None
        return write(task)


def _ordered(request: EnqueueRequest) -> tuple[list[Chunk], SourceText | None]:
    """Return the chunks, and the text that they are of where that is known."""
    if request.texts is not None:
        return chunks_of(request.texts)
    given = request.chunks or []
    chunks = [Chunk.model_validate({**chunk.model_dump(), "ordinal": at}) for at, chunk in enumerate(given)]
    return chunks, None
