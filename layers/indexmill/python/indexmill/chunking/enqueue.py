"""Queue a text for chunking, without the Orchestrator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from indexmill.contracts.content import INLINE_LIMIT_BYTES
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.http_chunking import ChunkEnqueueRequest, ChunkEnqueueResponse
from indexmill.contracts.identity import CallerContext, hidden_characters, new_id
from indexmill.contracts.messages import ChunkTask, write
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.aws.sqs_queue import Queue


@dataclass(frozen=True, slots=True)
class EnqueueChunk:
    """The asynchronous use case."""

    queue: Queue
    blobs: BlobStore
    make_id: Callable[[], str] = new_id

    def __call__(
        self, caller: CallerContext, request: ChunkEnqueueRequest, request_id: str
    ) -> ChunkEnqueueResponse:
        """Send a ChunkTask; when this returns, the queue has it.

        Without a job the answer names the object that will hold the result: its key contains the message's
        id, since the digest of the chunks is unknown before the work is done.
        Raises CallerError(forbidden) for a `job_id` from outside, TransientError(queue_unavailable,
        storage_unavailable).
        """
        if request.job_id is not None and not caller.internal:
            raise CallerError(
                ErrorCode.FORBIDDEN,
                "job_id is for internal callers only.",
                field="body.job_id",
                hint="Leave job_id out, or use POST /orchestrator/jobs.",
            )
        message_id = self.make_id()
        task = ChunkTask(
            message_id=message_id,
            job_id=request.job_id,
            attempt=request.attempt,
            request_id=request_id or None,
            text=request.text,
            title=request.title,
            settings=request.settings,
            result_key=None if request.job_id is not None else f"chunks/{message_id}.json",
        )
        if self.queue.send([self._body(task)], [caller.caller_id]):
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The work could not be queued.")
        return ChunkEnqueueResponse(
            job_id=request.job_id,
            result_key=task.result_key,
            hidden_characters=hidden_characters(request.text),
        )

    def _body(self, task: ChunkTask) -> str:
        body = write(task)
        if len(body.encode()) <= INLINE_LIMIT_BYTES:
            return body
        ref = self.blobs.put((task.text or "").encode(), kind="text", content_type="text/markdown")
        return write(task.model_copy(update={"text": None, "text_ref": ref}))
