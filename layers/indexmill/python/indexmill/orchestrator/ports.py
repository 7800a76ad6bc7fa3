"""What the Orchestrator needs from outside: a store of jobs; Chunking has a module of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Protocol

from indexmill.contracts.content import BlobRef
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Retrying, StageResult, Stored, Target
from indexmill.orchestrator.state_machine import Decision


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message that is committed with the state change that caused it, and sent afterwards."""

    id: str
    """Also the message's id, in every copy."""
    job_id: str
    attempt: int
    stage: str
    kind: Literal["queue", "call"]
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
    """Whether the job is wanted although another one is at work on the same document."""
    payload_digest: str | None = None
    depends_on: tuple[str, ...] = ()
    """Jobs that must be done first; the same for all jobs of a submit."""
    replay_of: str | None = None


LEFT_AFTER: Final = timedelta(seconds=3)
"""Who committed a message and did not get it out by then was cut short, or is at a long call."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a submit gave for one job."""

    job_id: str
    status: JobStatus
    deduplicated: bool = False
    """Whether this is a job that was at work on the document already."""
    expected_by: datetime | None = field(default=None, compare=False)
    """What the job itself was promised."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a submit committed."""

    accepted: list[Accepted]
    """Beside the jobs, in order."""
    outbox: list[OutboxRow]
    """Messages of every job that was admitted by it; claimed by us."""
    expected_by: datetime | None = None
    """By when all of the jobs will most likely have ended."""
    answer: str | None = None
    """What the first submit under the same key answered; then this one changed nothing."""


@dataclass(frozen=True, slots=True)
class Once:
    """A submit that may be sent again within a day and is then the same one."""

    key: str
    digest: str
    """Of what the request says."""
    answer: Callable[[Sequence[Accepted], datetime | None], str]
    """Returns the answer to keep, as JSON: for these jobs, expected by then."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What a decision needs to know of a job; its row is locked meanwhile."""

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


Decide = Callable[[JobState | None, StageResult], Change]
"""Decides about one result; the state is None when there is no such job. Must not do I/O."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which of a caller's jobs to list, newest first."""

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
    """What the queue told of it: when it was sent, when it was first received."""
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


class JobEvents(Protocol):
    """Tells what happens to a job, by short reads. Raises TransientError(database_unavailable)."""

    def events_after(self, caller_id: str, job_id: str, seq: int) -> JobNews | None:
        """Return the caller's job with its events after `seq`; None when it is unknown or somebody else's."""
        ...


class Windows(Protocol):
    """Counts the streams that wait for something to happen, in all processes together."""

    def enter(self, seconds: float) -> str | None:
        """Take a place for at most `seconds`; None when all are taken, or the count cannot be read."""
        ...

    def leave(self, place: str) -> None:
        """Give the place back. Never raises: a place that is not given back is free after its seconds."""
        ...


class JobStore(Protocol):
    """The only writer of job state. All calls raise TransientError(database_unavailable)."""

    def submit(self, jobs: Sequence[NewJob], once: Once | None = None) -> Submission:
        """Accept jobs of one caller and corpus in one transaction: job, history, outbox, and their admission.

        A job whose document another one is at work on is that one (`deduplicated`), unless it is forced.
        Raises CallerError: validation_error for an unknown dependency, idempotency_conflict,
        quota_exceeded when too many jobs of the caller are pending.
        """
        ...

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None when it is unknown or somebody else's."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it, without a lock."""
        ...

    def find(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        ...

    def apply(self, results: Sequence[StageResult], decide: Decide) -> list[Change]:
        """Lock the results' jobs, decide about each in order, and commit every change at once.

        A result whose id was already counted is late. New outbox rows count as claimed by us.
        """
        ...

    def admit_all(self) -> list[OutboxRow]:
        """Let every pending job start that may, whoever's it is; the messages are claimed by us."""
        ...

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that nobody else holds."""
        ...

    def take_over(self, ids: Sequence[str]) -> list[OutboxRow]:
        """Take these messages from whoever holds them, less those that are out, parked or not admitted."""
        ...

    def left_behind(self, job_ids: Sequence[str]) -> list[OutboxRow]:
        """Take what was committed for these jobs some seconds ago (LEFT_AFTER) and never tried to be sent."""
        ...

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        ...

    def mark_failed(self, ids: Sequence[str], error: str, *, away: bool = False) -> None:
        """Give claimed messages back after a failed try; one that failed too often is parked.

        `away`: nothing could be sent at all, which says nothing about these messages and does not count.
        """
        ...

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled; one that is kept already stays as it is."""
        ...
