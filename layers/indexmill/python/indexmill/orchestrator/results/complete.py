"""Stage results over HTTP: the same fence as for those of the callback queue."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import StageCompletePayload, StageCompleteResponse
from indexmill.contracts.messages import StageFailure, StageResult, stage_result
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, unknown_job
from indexmill.orchestrator.results.apply import Recorder
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.orchestrator.store.results import Verdict
from indexmill.orchestrator.store.rows import JobState


@dataclass(frozen=True, slots=True)
class CompleteStage:
    """The internal callback use case."""

    record: Recorder
    relay: Relay

    def __call__(
        self, ctx: CallerContext, job_id: str, payload: StageCompletePayload
    ) -> StageCompleteResponse:
        """Apply one result.

        Raises CallerError: forbidden for anyone but internal callers, not_found, validation_error for a
        result that does not fit its stage, invalid_transition for a stage the job has not reached.
        """
        if not ctx.internal:
            raise CallerError(ErrorCode.FORBIDDEN, "Internal service key required")
        current = self.record.store.read(lambda tx: tx.state(job_id)) if is_job_id(job_id) else None
        if current is None:
            raise unknown_job()
        (change,) = self.record.changes([_as_result(current, payload)])
        self.relay.send(list(change.outbox))
        verdict = change.verdict
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
        return stage_result(**common, failure=failure)
    try:
        return stage_result(**common, **MODULES[payload.stage].from_http(current, payload.result or {}))
    except ValidationError as error:
        raise CallerError(
            ErrorCode.VALIDATION_ERROR, "The result does not fit the stage.", field="body.result"
        ) from error


def _derived_id(job_id: str, attempt: int, payload: StageCompletePayload) -> str:
    """Return an id for a result that has none, from its content: the same result twice is applied once."""
    content = json.dumps([job_id, attempt, payload.stage, payload.status, payload.result], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
