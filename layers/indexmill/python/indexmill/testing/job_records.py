"""What the job store in memory keeps: jobs, their messages, and the catalogue's row of each document."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.orchestrator.idempotency import idempotency_conflict
from indexmill.orchestrator.pipeline import progress, user_message
from indexmill.orchestrator.ports import JobFilter, NewJob, Once, OutboxRow

CLAIM = timedelta(seconds=30)
KEY_LIFE = timedelta(hours=24)
HELD = datetime.max.replace(tzinfo=UTC)
"""A message of a job that is not admitted yet is nobody's to send."""


@dataclass
class Record:
    """One row of `jobs`."""

    job: Job
    target: Target
    caller_id: str
    forced: bool = False
    issued: int | None = None
    resume_stage: str | None = None
    blocked_by: str | None = None
    ended_at: datetime | None = None
    stored: Stored | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    payload_digest: str | None = None
    depends_on: tuple[str, ...] = ()
    tier: str = "free"
    admitted_at: datetime | None = None

    @property
    def active(self) -> bool:
        """Whether the job was started and has not ended."""
        return self.job.status is not JobStatus.PENDING and not self.job.status.terminal

    @property
    def in_line(self) -> bool:
        """Whether the job may start as soon as there is room."""
        return self.job.status is JobStatus.PENDING and self.blocked_by != "dependency"


@dataclass
class Row:
    """One row of `outbox`."""

    row: OutboxRow
    claimed_until: datetime
    created: int
    sent_at: datetime | None = None
    parked: bool = False
    tries: int = 0
    rescues: int = 0
    last_error: str | None = None

    @property
    def sent(self) -> bool:
        """Whether it is out."""
        return self.sent_at is not None


@dataclass
class CatalogueRow:
    """What search sees of a document, and what may be published."""

    published: int | None = None
    min_generation: int = 0
    updated_at: datetime | None = None


@dataclass
class KeptAnswer:
    """One row of `idempotency_keys`."""

    digest: str
    answer: str
    at: datetime

    def answer_to(self, once: Once) -> str:
        """Return the first answer; raises CallerError(idempotency_conflict) for another body."""
        if once.digest != self.digest:
            raise idempotency_conflict()
        return self.answer


def first_shown(new: NewJob, now: datetime, expected: datetime | None) -> Job:
    """Return a new job as its caller sees it."""
    status = JobStatus.PENDING
    return Job(
        job_id=new.job_id,
        status=status,
        url=new.submitted_url,
        corpus_name=new.target.corpus_name,
        created_at=now,
        updated_at=now,
        user_message=user_message(status, None),
        progress=progress(status, None),
        attempt=1,
        batch_id=new.batch_id,
        document_id=new.target.document_id,
        priority=new.priority,
        job_type=new.job_type,
        replay_of=new.replay_of,
        expected_by=expected,
    )


def keeps(row: Row, job: Job) -> bool:
    """Say whether `row` is the message of the job's current stage and attempt."""
    return (row.row.job_id, row.row.stage, row.row.attempt) == (job.job_id, job.status.value, job.attempt)


def matches(job: Job, wanted: JobFilter) -> bool:
    """Say whether the list with these filters has the job."""
    pairs = (
        (wanted.corpus_name, job.corpus_name),
        (wanted.status, job.status.value),
        (wanted.failed_stage, job.failed_stage),
        (wanted.url, job.url),
        (wanted.code, job.error.code if job.error else None),
        (wanted.batch_id, job.batch_id),
    )
    return (
        all(want is None or want == have for want, have in pairs)
        and (wanted.created_after is None or job.created_at >= wanted.created_after)
        and (wanted.created_before is None or job.created_at < wanted.created_before)
        and (wanted.before is None or (job.created_at, job.job_id) < wanted.before)
    )
