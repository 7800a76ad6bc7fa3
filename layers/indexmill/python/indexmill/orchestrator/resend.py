"""The work of a stage once more: a kept message under a new id, and where a retried job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import JobError
from indexmill.contracts.messages import EmbedTask, ScrapeTask, chunk_task_from, write
from indexmill.orchestrator.pipeline import FIRST, ORDER, STAGES
from indexmill.orchestrator.ports import JobState, OutboxRow

_CONTENT_LOST: Final = frozenset({ErrorCode.CONTENT_MISSING, ErrorCode.CONTENT_CORRUPT})


@dataclass(frozen=True, slots=True)
class Renewal:
    """What is new in the copy of a message."""

    message_id: str
    attempt: int
    generation: int
    """Only messages that publish have one."""


def stage_to_resume(
    failed_stage: str, kept: Mapping[str, str], error: JobError | None, *, outdated: bool
) -> str:
    """Return the stage from which a failed job goes on: the failed one while its payload is kept.

    `kept` are payloads by stage. With `outdated` somebody else published the document since the job ended:
    then what the job fetched long ago must not replace it, and it is fetched again. And so it is when the
    job's `error` says that what the kept payload refers to is gone.
    """
    if outdated or (error is not None and error.code in _CONTENT_LOST):
        return FIRST
    for stage in reversed(STAGES[: ORDER.get(failed_stage, 0) + 1]):
        if stage.name in kept:
            return stage.name
    return FIRST


def renewed(state: JobState, stage: str, payload: str | None, renewal: Renewal) -> OutboxRow:
    """Return the message of `stage` under its new id; without a kept payload the first stage begins anew."""
    return OutboxRow(
        renewal.message_id,
        state.job_id,
        renewal.attempt,
        stage,
        _payload(state, stage, payload, renewal),
        caller_id=state.target.caller_id,
    )


def _payload(state: JobState, stage: str, payload: str | None, renewal: Renewal) -> str:
    own: dict[str, Any] = {"message_id": renewal.message_id, "attempt": renewal.attempt}
    if stage == FIRST:
        if payload is None:
            return write(ScrapeTask(job_id=state.job_id, url=state.target.url, **own))
        return write(ScrapeTask.model_validate_json(payload).model_copy(update=own))
    if stage == "embedding":
        task = EmbedTask.model_validate_json(payload or "")
        return write(task.model_copy(update={**own, "generation": renewal.generation}))
    return write(chunk_task_from(payload or "", job_id=state.job_id, **own))
