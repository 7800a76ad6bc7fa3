"""Rows of the Orchestrator as its use cases see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from indexmill.contracts.content import BlobRef
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Retrying, Stored, Target
from indexmill.orchestrator.state_machine import Decision

CLAIM_S: Final = 30
"""Seconds for which a process has claimed the messages that it committed or took."""
PARK_AFTER: Final = 10
"""Failed sends after which a message is parked, so that it never blocks the others."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message that is committed with the state change that caused it, and sent afterwards."""

    id: str
    """Also the message's id, in every copy."""
    job_id: str
    attempt: int
    stage: str
    payload: str
    """The body to send, as JSON."""
    tries: int = 0
    """Failed tries to send it."""
    caller_id: str = ""
    """Whose job it is: its group in the queue."""


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job about to be accepted, with its first message."""

    job_id: str
    target: Target
    submitted_url: str
    batch_id: str | None
    first: OutboxRow
    tier: str = "free"
    job_type: str = "index"
    priority: int = 50
    forced: bool = False
    """Whether the job starts although another one of the same document is in flight."""
    payload_digest: str | None = None
    depends_on: tuple[str, ...] = ()
    """Jobs that must be done first; the same for all jobs of a submit."""
    replay_of: str | None = None


@dataclass(frozen=True, slots=True)
class InFlight:
    """A job that has not ended, by its document."""

    document_id: str
    job_id: str
    status: JobStatus
    expected_by: datetime | None


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as decisions see it; its row is locked meanwhile."""

    job_id: str
    status: JobStatus
    attempt: int
    target: Target
    generation: int
    """A fresh number for a message that publishes."""
    title: str | None = None
    issued: int | None = None
    """Number of the newest message that publishes."""
    has_dependents: bool = False
    """Whether other jobs wait for this one."""
    visible: bool = False
    """Whether search sees what that message published, or something newer; known where it matters."""


@dataclass(frozen=True, slots=True)
class LockedJob:
    """A caller's own job, locked for a job action."""

    state: JobState
    error: JobError | None
    failed_stage: str | None
    resume_stage: str | None
    forced: bool
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Original:
    """A job with what a replay or a comparison needs."""

    job: Job
    target: Target
    stored: Stored | None = None
    """Its raw content, when that was kept."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Digests of what went into its result."""
    payload_digest: str | None = None


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Number of a batch's jobs with one status and error code."""

    status: JobStatus
    code: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Again:
    """The current stage's kept message goes out under a new id and generation, same attempt."""

    message_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class Change:
    """What one result does to its job: the verdict, and what is written in the same transaction."""

    decision: Decision
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    outbox: tuple[OutboxRow, ...] = ()
    """What follows: the next stage's message, and those of jobs that are admitted in an ended job's place."""
    retrying: Retrying | None = None
    generation: int | None = None
    """Of the message that publishes, when one follows."""
    again: Again | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What went into the result, for comparing."""
    stored: Stored | None = None
    """Where the raw content is kept."""
    status: JobStatus | None = None
    """The job's status afterwards; None for an unknown job."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of a job that a stage's result caused, for the history."""

    job_id: str
    attempt: int
    from_status: JobStatus
    to_status: JobStatus
    cause: str
    error: JobError | None
    tries: int | None
    worker: str | None
    elapsed_ms: int | None
    outbox: tuple[OutboxRow, ...]
    """Messages that follow from it."""


@dataclass(frozen=True, slots=True)
class JobUpdate:
    """A job's columns after a batch of results; None and {} keep what is there."""

    job_id: str
    status: JobStatus
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    generation: int | None = None
    stored: Stored | None = None
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter for a list of a caller's jobs, newest first."""

    caller_id: str
    corpus_name: str | None = None
    status: str | None = None
    failed_stage: str | None = None
    url: str | None = None
    code: str | None = None
    """Of its error."""
    batch_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    limit: int = 50
    before: tuple[datetime, str] | None = None
    """Keyset: only jobs older than this (created_at, job_id)."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that no consumer could finish."""

    queue: str
    body: str
    """The whole message, or its beginning when `body_ref` is set."""
    receive_count: int
    reason: str
    """A sentence for people."""
    cause: str = "unknown"
    """One of a bounded set, for counting and choosing."""
    job_id: str | None = None
    stage: str | None = None
    attempt: int | None = None
    message_id: str | None = None
    body_ref: BlobRef | None = None
    attributes: Mapping[str, str] | None = None
    """SQS attributes: when it was sent, when it was first received."""
    source_id: str | None = None
    """The queue's own id of the message: kept once, however often it is delivered."""


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One transition of a job, as its history has it."""

    seq: int
    """Grows with each transition."""
    attempt: int
    to_status: str
    at: datetime
    error: JobError | None = None
    """Why, when it failed."""


@dataclass(frozen=True, slots=True)
class JobNews:
    """A job and what happened to it since some event, seen at one moment."""

    job: Job
    newest: int
    """`seq` of its last event."""
    events: Sequence[JobEvent]
    """Oldest first; the last one led to `job` as it is."""


class Windows(Protocol):
    """Counts the streams that wait for something to happen, in all processes together."""

    def enter(self, seconds: float) -> str | None:
        """Take a place for at most `seconds`; None when all are taken, or the count cannot be read."""
        ...

    def leave(self, place: str) -> None:
        """Give the place back. Never raises: a place that is not given back is free after its seconds."""
        ...
