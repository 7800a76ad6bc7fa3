"""Rows and port of job actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.contracts.texts import Doubt
from indexmill.orchestrator.jobs.rows import JobState, OutboxRow


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A caller's own job, locked for a job action."""

    state: JobState
    error: JobError | None
    failed_stage: str | None
    resume_stage: str | None
    forced: bool
    ended_at: datetime | None
    replay_of: str | None = None
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
    accept: Sequence[Doubt] | None = None
    """Doubts despite which its page is read."""


class Cancels(Protocol):
    """Marks of canceled jobs, for workers that have their messages."""

    def mark(self, attempts: Mapping[str, int]) -> None:
        """Mark jobs, by id with the attempt that was canceled; nothing is raised."""
        ...


class ActionsTx(Protocol):
    """Row operations of cancel, retry and replay."""

    def lock_job(self, caller_id: str, job_id: str) -> LockedJob | None:
        """Lock and return the caller's job."""
        ...

    def lock_batch(self, caller_id: str, batch_id: str, most: int) -> list[LockedJob]:
        """Lock and return the first jobs of the caller's batch that have not ended, in the order of ids."""
        ...

    def cancel_jobs(
        self, jobs: Mapping[str, JobStatus], errors: Sequence[JobError], request_id: str | None
    ) -> None:
        """Fail jobs, by id with their status, with history, and park their messages that were not sent."""
        ...

    def has_message(self, job_id: str, message_id: str) -> bool:
        """Return whether the job has that message."""
        ...

    def published_since(self, document_id: str, at: datetime) -> bool:
        """Return whether the document is published and was written to after `at`."""
        ...

    def kept_payloads(self, job_id: str) -> dict[str, str]:
        """Return the newest payload of each stage."""
        ...

    def restart_job(
        self, row: OutboxRow, generation: int | None, request_id: str | None, *, blocked: bool
    ) -> None:
        """Make the failed job pending, in the row's attempt, with the row as the message it starts with."""
        ...

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the caller's job with what a replay needs."""
        ...
