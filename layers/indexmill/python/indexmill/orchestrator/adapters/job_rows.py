"""Rows of `jobs` as what they mean."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Target
from indexmill.orchestrator.pipeline import progress, user_message
from indexmill.orchestrator.ports import JobEvent, JobState
from indexmill.orchestrator.retryable import retryable


def as_job(row: tuple[Any, ...]) -> Job:
    """Read a row of JOB_COLUMNS."""
    status = JobStatus(row[1])
    error = JobError.model_validate(row[5]) if row[5] else None
    return Job(
        job_id=row[0],
        status=status,
        url=row[2],
        corpus_name=row[3],
        failed_stage=row[4],
        error=error,
        created_at=row[6],
        updated_at=row[7],
        user_message=user_message(status, error),
        progress=progress(status, row[4]),
        attempt=row[8],
        batch_id=row[9],
        document_id=row[10],
        chunk_count=row[11],
        title=row[12],
        attempts=row[13] or (error.attempts if error else None),
        next_retry_at=row[14],
        priority=row[15],
        job_type=row[16],
        replay_of=row[17],
        expected_by=row[18],
        retryable=retryable(status, error),
    )


def as_state(row: tuple[Any, ...]) -> JobState:
    """Read a row of STATE_COLUMNS and a generation."""
    job_id, status, attempt, caller_id, corpus, key, document, canonical, url, *rest = row
    title, issued, awaited, generation = rest
    target = Target(
        caller_id=caller_id,
        corpus_name=corpus or "",
        corpus_key=key or "",
        document_id=document or "",
        url=canonical or url,
    )
    return JobState(job_id, JobStatus(status), attempt, target, generation, title, issued, awaited)


def as_event(seq: int, attempt: int, to_status: str, at: str, detail: Any) -> JobEvent:
    """Read a row of the history; `detail` is the error of a failure."""
    error = JobError.model_validate(detail) if detail and to_status == JobStatus.FAILED else None
    return JobEvent(seq, attempt, to_status, datetime.fromisoformat(at), error)
