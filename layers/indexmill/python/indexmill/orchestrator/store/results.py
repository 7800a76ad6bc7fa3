"""Rows of results: jobs, their history and messages, the inbox, and documents as results change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from psycopg.types.json import Jsonb

from indexmill.contracts.content import Unchanged
from indexmill.contracts.cost import Amounts, Budget, Spent
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.job import DuplicateOf, JobError, JobStatus, PageChange
from indexmill.contracts.messages import Retrying, StageResult, Stored, Target
from indexmill.orchestrator.store.rows import JobState, OutboxRow, Previous, Row
from indexmill.platform.postgres.database import Statements, json_of

_MESSAGE: Final = ("id", "job_id", "caller_id", "attempt", "stage", "payload")


class Verdict(StrEnum):
    """Position of a result relative to the job's state."""

    ADVANCE = "advance"
    FAIL = "fail"
    LATE = "already_advanced"
    """Behind the state, or a copy: nothing happens, and that is success."""
    EARLY = "early"
    """Ahead of the state: kept and looked at again, never dropped."""
    WAIT = "waiting"
    """The stage is current and waits for its next try: that is recorded, the state stays."""
    REDISPATCH = "redispatch"
    """The stage is current and was fenced out by another job's end: its message is redispatched."""
    CONTINUE = "continue"
    """The stage is current and did a part of its work: that is recorded, and the next part follows."""


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of one result on its job, from its stage's module to the statement.

    None and {} leave a column unchanged.
    """

    verdict: Verdict = Verdict.ADVANCE
    status: JobStatus | None = None
    """The job's status afterwards; None for an unknown job."""
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    generation: int | None = None
    """Of the message that publishes, when one follows or is redispatched."""
    stored: Stored | None = None
    """Where the raw content is kept."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Digests of what went into the result: enough to say later whether a replay made the same."""
    change: PageChange | None = None
    """What the fetch found, compared with the version that was published when the job was submitted."""
    unchanged: Unchanged | None = None
    """How the page was found unchanged: nothing follows."""
    duplicate_of: DuplicateOf | None = None
    outbox: tuple[OutboxRow, ...] = ()
    """The next stage's message, and those of jobs that are admitted in an ended job's place."""
    retrying: Retrying | None = None
    erased: Erased | None = None
    """Part of a deletion that is done."""
    redispatch: str | None = None
    """Id of the copy of the current stage's message that goes out, same attempt."""
    tokens: int | None = None
    """Of the chunks; None when they are not here."""
    size: int | None = None
    """Bytes of the content that was fetched."""
    ends: bool = False
    """There is nothing to index: nothing follows."""
    fenced: bool = False
    """Nothing was published, since another job's end had fenced this generation out."""

    @property
    def moves(self) -> bool:
        """Return whether the job has another status afterwards."""
        return self.verdict in (Verdict.ADVANCE, Verdict.FAIL)

    @property
    def ended(self) -> bool:
        """Return whether the job is done or failed afterwards."""
        return self.status is not None and self.status.terminal

    def after(self, before: Change | None) -> Change:
        """Return this change together with the one `before` of the same job, whose columns it may leave."""
        if before is None:
            return self
        kept = {name: getattr(before, name) for name in _KEPT if getattr(self, name) is None}
        return replace(self, facts={**before.facts, **self.facts}, **kept)


_KEPT: Final = ("title", "chunk_count", "generation", "stored", "change", "duplicate_of")


@dataclass(frozen=True, slots=True)
class Transition:
    """One transition of a job that a stage's result caused, for the history."""

    state: JobState
    """Before it."""
    result: StageResult
    change: Change
    cause: str
    spent: Amounts | None
    """What the stage spent for its result; None for unknown."""


@dataclass(frozen=True, slots=True)
class Published:
    """The published version of a document, whose row is locked meanwhile."""

    generation: int | None
    job_id: str | None
    """The job that published it, or that found it unchanged last."""
    contested: bool
    """Whether a forced job of the document is in flight, whose older content could still replace it."""
    indexed_at: datetime | None = None
    """Since when search sees it."""


class Results:
    """Row operations of a batch of results."""

    _sql: Statements

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it, without a lock."""
        row = self._sql.one("state", job_id=job_id)
        return as_state(row) if row else None

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock and return the jobs, each with a fresh generation."""
        return {row["id"]: as_state(row) for row in self._sql.all("lock_jobs", job_ids=list(job_ids))}

    def spent(self, job_ids: Sequence[str]) -> dict[str, Spent]:
        """Return what the jobs used so far, in all attempts."""
        found = self._sql.all("spent", job_ids=list(job_ids))
        return {row.pop("job_id"): Spent(**{name: row[name] or 0 for name in row}) for row in found}

    def receive(self, message_ids: Sequence[str]) -> set[str]:
        """Note the messages as received; return those that were not received before."""
        return {row["message_id"] for row in self._sql.all("receive", message_ids=list(message_ids))}

    def forget(self, message_ids: Sequence[str]) -> None:
        """Let the messages count as not received."""
        self._sql.do("forget", message_ids=list(message_ids))

    def save_results(self, changes: Mapping[str, Change], transitions: Sequence[Transition]) -> None:
        """Write the jobs' new columns, by id, their transitions, and the messages that follow, claimed."""
        messages = [row for each in transitions for row in each.change.outbox]
        updates = changes.values()
        self._sql.do(
            "save_results",
            job_ids=list(changes),
            statuses=[each.status and each.status.value for each in updates],
            stages=[each.error.stage if each.error else None for each in updates],
            errors=[json_of(each.error) for each in updates],
            titles=[each.title for each in updates],
            counts=[each.chunk_count for each in updates],
            generations=[each.generation for each in updates],
            raw_refs=[json_of(each.stored) for each in updates],
            facts=[Jsonb(each.facts) if each.facts else None for each in updates],
            changes=[each.change for each in updates],
            unchanged=[each.unchanged for each in updates],
            duplicates=[json_of(each.duplicate_of) for each in updates],
            h_jobs=[each.state.job_id for each in transitions],
            h_attempts=[each.state.attempt for each in transitions],
            h_from=[each.state.status.value for each in transitions],
            h_to=[each.change.status and each.change.status.value for each in transitions],
            h_causes=[each.cause for each in transitions],
            h_details=[json_of(each.change.error) for each in transitions],
            h_tries=[each.result.tries for each in transitions],
            h_workers=[each.result.worker for each in transitions],
            h_elapsed=[each.result.elapsed_ms for each in transitions],
            h_spent=[None if each.spent is None else Jsonb(each.spent) for each in transitions],
            o_ids=[row.id for row in messages],
            o_jobs=[row.job_id for row in messages],
            o_attempts=[row.attempt for row in messages],
            o_stages=[row.stage for row in messages],
            o_payloads=[row.payload for row in messages],
        )

    def note_stale(self, results: Sequence[StageResult]) -> None:
        """Add an audit event for each result of an earlier attempt, which changes nothing."""
        told = {"job_id", "attempt", "stage", "status", "failure", "request_id"}
        self._sql.do(
            "note_stale", results=Jsonb([each.model_dump(mode="json", include=told) for each in results])
        )

    def save_retries(self, notes: Mapping[str, Retrying]) -> None:
        """Write until when a job's stage waits for its next try, by job id."""
        self._sql.do(
            "save_retries",
            job_ids=list(notes),
            tries=[note.tries for note in notes.values()],
            next_retry_at=[note.next_retry_at for note in notes.values()],
            retry_in_s=[note.retry_in_s for note in notes.values()],
            causes=[note.cause for note in notes.values()],
            failures=[json_of(note.failure) for note in notes.values()],
        )

    def redispatch(self, row: OutboxRow, generation: int | None) -> None:
        """Insert a copy of the current stage's message, claimed, with the generation that it may publish."""
        self._sql.do("redispatch", **columns_of(row), generation=generation)

    def lock_documents(self, targets: Sequence[Target]) -> dict[str, Published]:
        """Lock the documents, so that none is published meanwhile; return what is published of them."""
        found = self._sql.all(
            "lock_documents",
            documents=[target.document_id for target in targets],
            corpus_keys=[target.corpus_key for target in targets],
            urls=[target.url for target in targets],
        )
        return {row.pop("document_id"): Published(row.pop("published"), **row) for row in found}

    def keep_published(self, documents: Mapping[str, str]) -> None:
        """Note the jobs that found their document unchanged, by document id; none of them is stale.

        Metadata that was submitted with a job replaces what its document has.
        """
        self._sql.do("keep_published", documents=list(documents), jobs=list(documents.values()))

    def mark_stale(self, documents: Mapping[str, str]) -> None:
        """Mark documents whose page is gone, by document id with the job of their published version."""
        self._sql.do("mark_stale", documents=list(documents), jobs=list(documents.values()))

    def raise_fences(self, generations: Mapping[str, int]) -> None:
        """Refuse these generations, by document id, and all before them."""
        self._sql.do("raise_fences", documents=list(generations), generations=list(generations.values()))


def as_state(row: Row) -> JobState:
    """Return the job as decisions see it."""
    return JobState(
        job_id=row["id"],
        status=JobStatus(row["status"]),
        attempt=row["attempt"],
        target=as_target(row),
        generation=row["next_generation"],
        title=row["title"],
        content_sha256=row["content_sha256"],
        job_type=row["job_type"],
        mark_stale=row["mark_stale"],
        accept=row["accept"],
        metadata=row["metadata"],
        page=row["page"],
        kind=row["kind"],
        crawl_id=row["batch_id"] if row["kind"] else None,
        previous=Previous(**row["previous"]) if row["previous"] else None,
        issued=row["generation"],
        has_dependents=row["has_dependents"],
        budget=Budget.model_validate(row["budget"]) if row["budget"] else None,
        has_duplicates=row.get("has_duplicates", False),
        corpus_is_deleted=row.get("corpus_is_deleted", False),
    )


def as_target(row: Row) -> Target:
    """Return the document; columns that the first release did not write may be missing."""
    return Target(
        caller_id=row["caller_id"],
        corpus_name=row["corpus_name"] or "",
        corpus_key=row["corpus_key"] or "",
        document_id=row["document_id"] or "",
        url=row["canonical_url"] or row["url"],
    )


def columns_of(row: OutboxRow) -> dict[str, Any]:
    """Return the columns of a message that is inserted."""
    return {name: getattr(row, name) for name in _MESSAGE}
