"""A stage's report over HTTP: the same fence as the callback queue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from indexmill.contracts.content import Chunk, Document
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_jobs import StageCompletePayload, StageCompleteResponse
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.messages import Chunked, Embedded, StageFailure, StageResult
from indexmill.orchestrator.ports import JobState
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.results import Recorder
from indexmill.orchestrator.state_machine import Verdict


@dataclass(frozen=True, slots=True)
class CompleteStage:
    """The internal callback use case."""

    record: Recorder
    relay: Relay

    def __call__(
        self, ctx: CallerContext, job_id: str, payload: StageCompletePayload
    ) -> StageCompleteResponse:
        """Apply one report.

        Raises CallerError: forbidden for anyone but internal callers, not_found, validation_error for a
        result that does not fit its stage, invalid_transition for a stage the job has not reached.
        """
        if not ctx.internal:
            raise CallerError(ErrorCode.FORBIDDEN, "Internal service key required")
        current = self.record.store.read(lambda tx: tx.state(job_id))
        if current is None:
            raise CallerError(ErrorCode.NOT_FOUND, "No such job.")
        (change,) = self.record.changes([_as_result(current, payload)])
        self.relay.send(list(change.outbox))
        verdict = change.decision.verdict
        if verdict is Verdict.EARLY:
            raise CallerError(
                ErrorCode.INVALID_TRANSITION, "The job has not reached this stage yet.", retry_after=1
            )
        if verdict is Verdict.FAIL:
            return StageCompleteResponse(status="job_failed")
        if verdict is Verdict.LATE or change.status is None:
            return StageCompleteResponse(status=Verdict.LATE.value)
        return StageCompleteResponse(status=change.status.value)


def _as_result(current: JobState, payload: StageCompletePayload) -> StageResult:
    attempt = payload.attempt or current.attempt
    common: dict[str, Any] = {
        "message_id": payload.message_id or _derived_id(current.job_id, attempt, payload),
        "job_id": current.job_id,
        "attempt": attempt,
        "stage": payload.stage,
        "status": payload.status,
    }
    if payload.status == "failed":
        failure = StageFailure(
            code=payload.error_code or ErrorCode.INTERNAL_ERROR,
            message=payload.error_message or "The stage reported a failure.",
        )
        return StageResult(**common, failure=failure)
    try:
        return StageResult(**common, **_made(current, payload.stage, payload.result or {}))
    except (ValidationError, KeyError, TypeError, ValueError) as error:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR, "The result does not fit the stage.", field="body.result"
        ) from error


def _made(current: JobState, stage: str, result: dict[str, Any]) -> dict[str, Any]:
    if stage == "scraping":
        text = str(result["text"])
        document = Document(
            url=current.target.url,
            final_url=result.get("final_url", current.target.url),
            title=result.get("title"),
            content_type=result.get("content_type", "text/markdown"),
            text=text,
            content_sha256=hashlib.sha256(text.encode()).hexdigest(),
        )
        return {"document": document}
    if stage == "chunking":
        chunks = [Chunk.model_validate(item) for item in result["chunks"]]
        return {"chunked": Chunked(chunks=chunks, chunk_count=len(chunks))}
    count = int(result["chunk_count"])
    model = str(result.get("model", "external"))
    embedded = Embedded(chunk_count=count, embedded=count, model=model, dimension=0, published=True)
    return {"embedded": embedded}


def _derived_id(job_id: str, attempt: int, payload: StageCompletePayload) -> str:
    """Name a report that has no id by its content, so that the same report twice counts once."""
    content = json.dumps([job_id, attempt, payload.stage, payload.status, payload.result], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
