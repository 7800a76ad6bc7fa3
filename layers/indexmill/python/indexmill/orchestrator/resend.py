"""The work of a stage once more: a kept message under a new id, and where a retried job goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import JobError
from indexmill.contracts.messages import write
from indexmill.contracts.pipeline import FIRST, ORDER, STAGES
from indexmill.orchestrator.ports import JobState, OutboxRow
from indexmill.orchestrator.stages.output import Renewal
from indexmill.orchestrator.stages.registry import MODULES

_CONTENT_LOST: Final = frozenset({ErrorCode.CONTENT_MISSING, ErrorCode.CONTENT_CORRUPT})


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
        write(MODULES[stage].renew(state, payload, renewal)),
        caller_id=state.target.caller_id,
    )
