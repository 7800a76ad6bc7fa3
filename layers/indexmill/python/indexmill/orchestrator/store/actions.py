"""Rows of job actions: cancel, retry and replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from indexmill.contracts.identity import Accept
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.store.queries import as_job, error_of
from indexmill.orchestrator.store.results import as_state, as_target, columns_of
from indexmill.orchestrator.store.rows import JobState, OutboxRow, Row
from indexmill.platform.postgres.database import Statements, json_of


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A caller's own job, locked for a job action."""

    state: JobState
    error: JobError | None
    failed_stage: str | None
    resume_stage: str | None
    forced: bool
    ended_at: datetime | None
    job_type: str
    replay_of: str | None = None
    deleted: bool = False
    """Whether its document was deleted since: nothing of it may come back."""
    stored: Stored | None = None
    """Its raw content, as far as that is known."""


@dataclass(frozen=True, slots=True)
class Original:
    """A job with what a replay or a comparison needs."""

    job: Job
    target: Target
    stored: Stored | None = None
    """Its raw content, when that was kept."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Digests of what went into its result."""
    previous_job_id: str | None = None
    """The job of the version that was published when it was submitted."""
    payload_digest: str | None = None
    accept: Accept = None
    """Doubts despite which its page is read."""
    metadata: dict[str, str] | None = None
    deleted: bool = False
    """Whether its document was deleted since."""


class Actions:
    """Row operations of cancel, retry and replay."""

    _sql: Statements

    def lock_job(self, caller_id: str, job_id: str) -> LockedJob | None:
        """Lock and return the caller's job."""
        row = self._sql.one("lock_job", caller_id=caller_id, job_id=job_id)
        return as_locked_job(row) if row else None

    def lock_batch(self, caller_id: str, batch_id: str, most: int) -> list[LockedJob]:
        """Lock and return the first jobs of the caller's batch that have not ended, in the order of ids."""
        found = self._sql.all("lock_batch", caller_id=caller_id, batch_id=batch_id, most=most)
        return [as_locked_job(row) for row in found]

    def cancel_jobs(
        self, jobs: Mapping[str, JobStatus], errors: Sequence[JobError], request_id: str | None
    ) -> None:
        """Fail jobs, by id with their status, with history, and park their messages that were not sent."""
        statuses = [status.value for status in jobs.values()]
        values = {"job_ids": list(jobs), "statuses": statuses, "errors": [json_of(each) for each in errors]}
        self._sql.do("cancel_jobs", request_id=request_id, **values)

    def has_message(self, job_id: str, message_id: str) -> bool:
        """Return whether the job has that message."""
        return self._sql.found("has_message", job_id=job_id, message_id=message_id)

    def published_since(self, document_id: str, at: datetime) -> bool:
        """Return whether the document is published and was written to after `at`."""
        return self._sql.found("published_since", document_id=document_id, at=at)

    def kept_payloads(self, job_id: str) -> dict[str, str]:
        """Return the newest payload of each stage."""
        return {row["stage"]: row["payload"] for row in self._sql.all("kept_payloads", job_id=job_id)}

    def restart_job(
        self, row: OutboxRow, generation: int | None, request_id: str | None, *, blocked: bool
    ) -> None:
        """Make the failed job pending, in the row's attempt, with the row as the message it starts with."""
        blocked_by = "dependency" if blocked else None
        values = {"generation": generation, "blocked_by": blocked_by, "request_id": request_id}
        self._sql.do("restart_job", **columns_of(row), **values, first=FIRST)

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the caller's job with what a replay needs."""
        row = self._sql.one("original", caller_id=caller_id, job_id=job_id)
        return as_original(row) if row else None


def as_locked_job(row: Row) -> LockedJob:
    """Return the job as job actions see it."""
    columns = ("failed_stage", "resume_stage", "forced", "ended_at", "job_type", "replay_of", "deleted")
    named = {name: row[name] for name in columns}
    return LockedJob(as_state(row), error_of(row), **named, stored=_stored(row))


def as_original(row: Row) -> Original:
    """Return the job as a replay sees it."""
    return Original(
        as_job(row),
        as_target(row),
        _stored(row),
        row["determinism"] or {},
        previous_job_id=row["previous"]["job_id"] if row["previous"] else None,
        payload_digest=row["payload_digest"],
        accept=row["accept"],
        metadata=row["metadata"],
        deleted=row["deleted"],
    )


def _stored(row: Row) -> Stored | None:
    return Stored.model_validate(row["raw_ref"]) if row["raw_ref"] else None
