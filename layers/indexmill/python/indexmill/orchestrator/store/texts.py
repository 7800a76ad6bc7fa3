"""Texts, progress and retry advice of a job for its caller, by its status and error."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from indexmill.contracts.errors import Trait, codes
from indexmill.contracts.job import Job, JobError, JobStatus, Progress
from indexmill.contracts.pipeline import BY_NAME, FIRST, ORDER, STAGES, Stage

PENDING_MESSAGE: Final = "Job queued"
SITEMAP_MESSAGE: Final = "Sitemap read — its pages are jobs of their own"
DUPLICATE_MESSAGE: Final = "Same page as another document of the corpus — that one is ready to search"
DONE_MESSAGE: Final = "Document indexed — ready to search"
DELETING_MESSAGE: Final = "Deleting…"
DELETED_MESSAGE: Final = "Deleted — the report is ready"
NOT_DELETED_MESSAGE: Final = "The deletion could not be finished. Retry it."
_ANY_STAGE: Final = {
    "canceled": "Job canceled",
    "dependency_failed": "A document that this one waits for could not be indexed.",
    "budget_exceeded": "This document needs more than the job may use.",
    "poison_message": "This document could not be processed. Try a different URL or format.",
}
_OURS: Final[Mapping[str, str]] = {
    "internal_error": "Something went wrong on our side",
    "database_unavailable": "Our database did not answer",
    "storage_unavailable": "Our storage did not answer",
}
"""Causes of failed tries; the text of a job that failed by one is its stage's."""
_HELD: Final = {
    "paused": "An operator has paused this step",
    "breaker_open": "A service that this step needs does not answer",
    "domain": "The site gets as many requests as it may",
    "domain_failing": "The site failed several times and is left alone for a while",
}

# A worker's own retries end as max_retries_exceeded; the other codes are reported at once by stages that run
# elsewhere.
_HELPABLE: Final = codes(Trait.RETRY_HELPS)
_FEW_SECONDS: Final = timedelta(seconds=15)
_MINUTE: Final = timedelta(minutes=1)
_PASSING_STATUS: Final = re.compile(r"http_(408|425|429|5\d\d)")


def user_message(
    status: JobStatus,
    error: JobError | None,
    kind: str | None = None,
    job_type: str = "index",
    *,
    duplicate: bool = False,
) -> str:
    """Return the sentence to show for a job: by the precise cause, else the code, else the stage."""
    if status is JobStatus.PENDING:
        return PENDING_MESSAGE
    if job_type == "delete":
        ended = {JobStatus.DONE: DELETED_MESSAGE, JobStatus.FAILED: NOT_DELETED_MESSAGE}
        return ended.get(status, DELETING_MESSAGE)
    if status is JobStatus.DONE:
        return SITEMAP_MESSAGE if kind == "sitemap" else DUPLICATE_MESSAGE if duplicate else DONE_MESSAGE
    if status is not JobStatus.FAILED:
        return BY_NAME[status.value].in_progress
    stage = BY_NAME.get(error.stage) if error is not None else None
    if error is None or stage is None:
        return BY_NAME[FIRST].on_failure
    return _text_of(stage, error.cause) or _text_of(stage, error.code) or stage.on_failure


def _text_of(stage: Stage, code: str | None) -> str | None:
    return stage.texts.get(code or "") or _ANY_STAGE.get(code or "") or _site_answered(code or "")


def _site_answered(code: str) -> str | None:
    passing = _PASSING_STATUS.fullmatch(code)
    return f"The site answered with an error ({passing[1]}). Try again later." if passing else None


def waiting_message(job: Job, now: datetime) -> str | None:
    """Return the sentence for a job that is held back or whose last try failed; None for another one.

    It names the cause, and when the next try is.
    """
    stage, held = BY_NAME.get(job.status.value), job.waiting.reason if job.waiting else None
    if stage is None and held not in ("domain_failing", "paused"):
        return None
    if stage is not None and job.last_error is not None and held != "paused":
        code = job.last_error.code
        text = _text_of(stage, code) or _OURS.get(code) or stage.on_failure
        # The rest is advice for a job that failed.
        cause = text.partition(". ")[0].rstrip(".")
    elif held in _HELD:
        cause = _HELD[held]
    else:
        return None
    if held in ("paused", "breaker_open"):
        return f"{cause}; it goes on by itself."
    at = job.next_retry_at or (job.waiting.next_eligible_at if job.waiting else None)
    return f"{cause}; trying again {_moment(at, now)}."


def _moment(at: datetime | None, now: datetime) -> str:
    if at is None or at <= now:
        return "now"
    if at - now < _MINUTE:
        return "in a few seconds" if at - now <= _FEW_SECONDS else "within a minute"
    at, now = at.astimezone(UTC), now.astimezone(UTC)
    return f"at {at:%H:%M} UTC" if at.date() == now.date() else f"on {at:%B} {at.day} at {at:%H:%M} UTC"


def progress(status: JobStatus, failed_stage: str | None) -> Progress:
    """Return the stage number to show: 0 while pending, all when done, the failed one after a failure."""
    total = len(STAGES)
    if status is JobStatus.DONE:
        return Progress(stage=total, of=total)
    at = failed_stage if status is JobStatus.FAILED else status.value
    return Progress(stage=ORDER.get(at or "", -1) + 1, of=total)


def retryable(status: JobStatus, error: JobError | None) -> bool:
    """Return whether the job failed for a reason that may have passed."""
    if status is not JobStatus.FAILED or error is None:
        return False
    return error.code in _HELPABLE or _PASSING_STATUS.fullmatch(error.code) is not None
