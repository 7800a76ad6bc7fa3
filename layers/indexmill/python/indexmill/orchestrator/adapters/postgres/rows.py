"""Rows, by column name, as values of the Orchestrator."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from indexmill.contracts.http_history import HistoryEntry, JobHistory
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Stored, Target, chunk_task_from, write
from indexmill.orchestrator.admission.choose import GlobalUsage, Usage
from indexmill.orchestrator.pipeline import progress, user_message
from indexmill.orchestrator.ports import JobEvent, JobState, LockedJob, Original, OutboxRow
from indexmill.orchestrator.retryable import retryable

Row = Mapping[str, Any]


def as_job(row: Row) -> Job:
    """Return the job as its caller sees it, without what it waits for."""
    status, error = JobStatus(row["status"]), _error(row)
    return Job(
        job_id=row["id"],
        status=status,
        url=row["url"],
        corpus_name=row["corpus_name"],
        failed_stage=row["failed_stage"],
        error=error,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        user_message=user_message(status, error),
        progress=progress(status, row["failed_stage"]),
        attempt=row["attempt"],
        batch_id=row["batch_id"],
        document_id=row["document_id"],
        chunk_count=row["chunk_count"],
        title=row["title"],
        attempts=row["tries"] or (error.attempts if error else None),
        next_retry_at=row["next_retry_at"],
        priority=row["priority"],
        job_type=row["job_type"],
        replay_of=row["replay_of"],
        expected_by=row["expected_by"],
        retryable=retryable(status, error),
    )


def as_state(row: Row) -> JobState:
    """Return the job as decisions see it."""
    return JobState(
        job_id=row["id"],
        status=JobStatus(row["status"]),
        attempt=row["attempt"],
        target=as_target(row),
        generation=row["next_generation"],
        title=row["title"],
        issued=row["generation"],
        has_dependents=row["has_dependents"],
    )


def as_locked_job(row: Row) -> LockedJob:
    """Return the job as job actions see it."""
    columns = ("failed_stage", "resume_stage", "forced", "ended_at")
    return LockedJob(as_state(row), _error(row), **{name: row[name] for name in columns})


def as_original(row: Row) -> Original:
    """Return the job as a replay sees it."""
    stored = Stored.model_validate(row["raw_ref"]) if row["raw_ref"] else None
    return Original(as_job(row), as_target(row), stored, row["determinism"] or {}, row["payload_digest"])


def as_target(row: Row) -> Target:
    """Return the document; columns that the first release did not write may be missing."""
    return Target(
        caller_id=row["caller_id"],
        corpus_name=row["corpus_name"] or "",
        corpus_key=row["corpus_key"] or "",
        document_id=row["document_id"] or "",
        url=row["canonical_url"] or row["url"],
    )


def as_message(row: Row) -> OutboxRow:
    """Return the message; a row whose kind is `call`, of the release before, becomes a ChunkTask."""
    columns = {name: value for name, value in row.items() if name != "kind"}
    if row["kind"] == "call":
        ids = {"message_id": row["id"], "job_id": row["job_id"], "attempt": row["attempt"]}
        columns["payload"] = write(chunk_task_from(row["payload"], **ids))
    return OutboxRow(**columns)


def as_event(row: Row) -> JobEvent:
    """Return one transition; `detail` is the error of a failure."""
    failed = row["detail"] and row["to_status"] == JobStatus.FAILED
    return JobEvent(
        row["seq"],
        row["attempt"],
        row["to_status"],
        datetime.fromisoformat(row["at"]),
        JobError.model_validate(row["detail"]) if failed else None,
    )


def as_history(job_id: str, rows: list[dict[str, Any]]) -> JobHistory | None:
    """Return the whole history, with whether its hash chain is intact; None without rows."""
    if not rows:
        return None
    return JobHistory(
        job_id=job_id,
        entries=[HistoryEntry.model_validate(row) for row in rows],
        intact=all(row["sound"] for row in rows) and rows[-1]["to_status"] == rows[-1]["status"],
    )


def as_usage(row: Row) -> tuple[Usage, GlobalUsage]:
    """Return the caller's usage and that of all callers."""
    columns = ("caller_id", "tier", "active", "in_hour", "in_minute", "hour_since", "minute_since", "newest")
    return (
        Usage(**{name: row[name] for name in columns}, chunks_today=row["chunks_today"]),
        GlobalUsage(row["now"].astimezone(UTC), row["all_active"], row["all_callers"], row["paused"]),
    )


def _error(row: Row) -> JobError | None:
    return JobError.model_validate(row["error"]) if row["error"] else None
