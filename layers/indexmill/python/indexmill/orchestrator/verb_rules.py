"""When a verb fits a job, and what the answer is when it does not; shared by every store."""

from __future__ import annotations

from datetime import datetime

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.job import JobError, JobStatus
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import JobState


def unknown_job() -> CallerError:
    """Return the one answer to unknown jobs and to somebody else's."""
    return CallerError(ErrorCode.NOT_FOUND, "No such job.")


def check_cancel(state: JobState) -> None:
    """Raise CallerError(invalid_transition) for a job that has ended or whose document is published."""
    if state.status.terminal:
        raise _unfit(f"The job has ended: it is {state.status.value}.")
    if state.visible:
        raise _unfit("The document is published already.", "The job will be done in a moment.")


def canceled(state: JobState, resume_stage: str | None, reason: str, at: datetime) -> JobError:
    """Return the error of a canceled job; one that waits counts for the stage it would start with."""
    waiting = state.status is JobStatus.PENDING
    stage = resume_stage or FIRST if waiting else state.status.value
    return JobError(stage=stage, code=ErrorCode.CANCELED, message=reason, at=at)


def same_cancel(status: JobStatus, error: JobError | None, reason: str, at: datetime) -> bool:
    """Say whether the job is canceled by this very call, whose answer was lost on its first run."""
    return (
        status is JobStatus.FAILED
        and error is not None
        and (error.code, error.message, error.at) == (ErrorCode.CANCELED, reason, at)
    )


def check_retry(status: JobStatus) -> None:
    """Raise CallerError(invalid_transition) for a job that did not fail."""
    if status is not JobStatus.FAILED:
        raise _unfit(f"Only a failed job can be retried; this one is {status.value}.")


def at_work(job_id: str) -> CallerError:
    """Return the refusal to retry while job `job_id` works on the same document."""
    return _unfit(f"Job {job_id} is at work on this document.", "Wait for it, or cancel it first.")


def _unfit(message: str, hint: str | None = None) -> CallerError:
    return CallerError(ErrorCode.INVALID_TRANSITION, message, hint=hint)
