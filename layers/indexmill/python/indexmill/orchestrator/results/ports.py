"""Rows and port of results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from indexmill.contracts.content import BlobRef, Unchanged
from indexmill.contracts.cost import Amounts, Spent
from indexmill.contracts.job import DuplicateOf, JobError, JobStatus, PageChange
from indexmill.contracts.messages import Retrying, StageResult, Stored, Target
from indexmill.orchestrator.jobs.rows import JobState, OutboxRow
from indexmill.orchestrator.jobs.state_machine import Decision


@dataclass(frozen=True, slots=True)
class Redispatch:
    """The current stage's kept message goes out under a new id and generation, same attempt."""

    message_id: str
    generation: int | None
    """None for a stage that does not publish."""


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of one result on its job: the verdict, and the rows of the same transaction."""

    decision: Decision
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    outbox: tuple[OutboxRow, ...] = ()
    """The next stage's message, and those of jobs that are admitted in an ended job's place."""
    retrying: Retrying | None = None
    generation: int | None = None
    """Of the message that publishes, when one follows."""
    redispatch: Redispatch | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What went into the result, for comparing."""
    stored: Stored | None = None
    """Where the raw content is kept."""
    change: PageChange | None = None
    unchanged: Unchanged | None = None
    duplicate_of: DuplicateOf | None = None
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
    spent: Amounts | None
    """What the stage spent for its result; None for unknown."""


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
    change: PageChange | None = None
    unchanged: Unchanged | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    duplicate_of: DuplicateOf | None = None


@dataclass(frozen=True, slots=True)
class PublishedText:
    """Searchable state of a document."""

    url: str
    text_sha256: str | None
    """None for what the first release published."""
    stale: bool


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A page, and a document that it names or is a duplicate of."""

    document_id: str
    original: str
    text_sha256: str
    """Of the page."""
    holds: bool
    """Whether it is a duplicate of that one."""
    job_id: str
    """That read the page."""


@dataclass(frozen=True, slots=True)
class DueDuplicate:
    """A page that has to be read again, with its last job."""

    document_id: str
    job_id: str
    caller_id: str
    tier: str
    mark_stale: bool
    is_kept: bool
    """Whether it is not a duplicate, and its content was stored within a day."""


@dataclass(frozen=True, slots=True)
class Published:
    """The published version of a document, whose row is locked meanwhile."""

    generation: int | None
    job_id: str | None
    """The job that published it, or that found it unchanged last."""
    contested: bool
    """Whether a forced job of the document is in flight, whose older content could still replace it."""


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


class ResultsTx(Protocol):
    """Row operations of a batch of results."""

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock and return the jobs, of any caller."""
        ...

    def spent(self, job_ids: Sequence[str]) -> dict[str, Spent]:
        """Return what the jobs used so far, in all attempts."""
        ...

    def receive(self, message_ids: Sequence[str]) -> set[str]:
        """Note the messages as received; return those that were not received before."""
        ...

    def forget(self, message_ids: Sequence[str]) -> None:
        """Let the messages count as not received."""
        ...

    def save_results(self, updates: Sequence[JobUpdate], transitions: Sequence[Transition]) -> None:
        """Write the jobs' new columns, their transitions, and the messages that follow, claimed."""
        ...

    def note_stale(self, results: Sequence[StageResult]) -> None:
        """Add an audit event for each result of an earlier attempt, which changes nothing."""
        ...

    def save_retries(self, notes: Mapping[str, Retrying]) -> None:
        """Write until when a job's stage waits for its next try, by job id."""
        ...

    def redispatch(self, row: OutboxRow, generation: int | None) -> None:
        """Insert a copy of the current stage's message, claimed, with the generation that it may publish."""
        ...

    def lock_documents(self, targets: Sequence[Target]) -> dict[str, Published]:
        """Lock the documents, so that none is published meanwhile; return what is published of them."""
        ...

    def keep_published(self, documents: Mapping[str, str]) -> None:
        """Note the jobs that found their document unchanged, by document id; none of them is stale."""
        ...

    def mark_stale(self, documents: Mapping[str, str]) -> None:
        """Mark documents whose page is gone, by document id with the job of their published version."""
        ...

    def raise_fences(self, generations: Mapping[str, int]) -> None:
        """Refuse these generations, by document id, and all before them."""
        ...

    def lock_originals(self, documents: Collection[str]) -> None:
        """Lock those of the documents that have a row, so that none is published meanwhile."""
        ...

    def originals_of(self, documents: Collection[str]) -> dict[str, str]:
        """Return the originals of those of the documents that are duplicates now, and those of these."""
        ...

    def published_texts(self, documents: Collection[str]) -> dict[str, PublishedText]:
        """Return what search has of the documents."""
        ...

    def keep_duplicates(self, read: Collection[str], rows: Sequence[Duplicate]) -> None:
        """Keep the rows; those of pages that were `read` replace all that were known of them."""
        ...

    def mark_outdated(
        self, originals: Collection[str], pages: Collection[str], unread: Collection[str]
    ) -> None:
        """Mark what is no longer as it was found, of originals and of pages, to be read again; a day later
        those of the pages that were `unread`.
        """
        ...

    def due_duplicates(self, most: int) -> list[DueDuplicate]:
        """Return pages to read again, at most so many, and take their marks away."""
        ...

    def put_off_duplicate(self, document_id: str) -> None:
        """Mark a page to be read again later."""
        ...
