"""User texts of a job, and its progress, by its status and error."""

from __future__ import annotations

from typing import Final

from indexmill.contracts.job import JobError, JobStatus, Progress
from indexmill.contracts.pipeline import BY_NAME, FIRST, ORDER, STAGES

PENDING_MESSAGE: Final = "Job queued"
DONE_MESSAGE: Final = "Document indexed — ready to search"
_ANY_STAGE: Final = {
    "canceled": "Job canceled",
    "dependency_failed": "A document that this one waits for could not be indexed.",
    "poison_message": "This document could not be processed. Try a different URL or format.",
}


def user_message(status: JobStatus, error: JobError | None) -> str:
    """Return the sentence to show for a job: the precise cause speaks first, then code, then stage."""
    if status is JobStatus.PENDING:
        return PENDING_MESSAGE
    if status is JobStatus.DONE:
        return DONE_MESSAGE
    if status is not JobStatus.FAILED:
        return BY_NAME[status.value].in_progress
    stage = BY_NAME.get(error.stage) if error is not None else None
    if error is None or stage is None:
        return BY_NAME[FIRST].on_failure
    for code in (error.cause, error.code):
        text = stage.texts.get(code or "") or _ANY_STAGE.get(code or "")
        if text:
            return text
    return stage.on_failure


def progress(status: JobStatus, failed_stage: str | None) -> Progress:
    """Return the stage number to show: 0 while pending, all when done, the failed one after a failure."""
    total = len(STAGES)
    if status is JobStatus.DONE:
        return Progress(stage=total, of=total)
    at = failed_stage if status is JobStatus.FAILED else status.value
    return Progress(stage=ORDER.get(at or "", -1) + 1, of=total)
