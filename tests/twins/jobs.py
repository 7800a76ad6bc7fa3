"""JobStore in memory: one dict per table and row, keyed by the columns of Postgres.

It is for the use cases that bring a job through the pipeline, thousands of times, within quotas of jobs in
flight and of starts: an order of the model costs a fifteenth of the CPU that it does on Postgres. Idempotency
keys, crawls, duplicates, dependencies, lists, batches, receipts and counts of chunks are left out: what needs
them runs on Postgres, and a row operation that is not here raises AttributeError. Docstrings are the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, cast

from indexmill.contracts.cost import Amounts, Spent
from indexmill.contracts.identity import Usage
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Retrying, StageResult
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.admission.admit import SECONDS_PER_POINT
from indexmill.orchestrator.store.actions import LockedJob, Original, as_locked_job, as_original
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import DeadLetter, JobsTx, T
from indexmill.orchestrator.store.queries import Hold, JobSnapshot, as_event, as_job
from indexmill.orchestrator.store.results import Change, Transition, as_state
from indexmill.orchestrator.store.rows import (
    CallerQueue,
    Candidate,
    GlobalUsage,
    InFlight,
    JobState,
    NewJob,
    OutboxRow,
    Pace,
    as_in_flight,
)
from indexmill.orchestrator.store.sweep import Count
from indexmill.platform.time import Clock
from tests.twins import published
from tests.twins.outbox import CLAIM, OutboxTable, is_unsent

Row = dict[str, Any]

_ENDED: Final = ("done", "failed")
_COPIED: Final = (
    *("batch_id", "tier", "job_type", "priority", "forced", "payload_digest", "replay_of", "request_id"),
    *("mark_stale", "kind", "accept", "metadata"),
)
_TABLES: Final = ("jobs", "outbox", "job_history", "stale", "inbox", "documents", "starts")
_NO_RETRY: Final[Row] = {"tries": 0, "next_retry_at": None, "retry_cause": None}
_UNSET: Final = (
    *(
        "failed_stage",
        "error",
        "title",
        "chunk_count",
        "generation",
        "raw_ref",
        "determinism",
        "duplicate_of",
    ),
    *("resume_stage", "admitted_at", "ended_at", "page_change", "unchanged", "last_error"),
)
_NEW: Final[Row] = {"status": "pending", "attempt": 1, "has_dependents": False, "deleted": False, **_NO_RETRY}


@dataclass
class InMemoryJobs(OutboxTable):
    """Tables, and the transactions over them."""

    clock: Clock
    jobs: dict[str, Row] = field(default_factory=dict)
    job_history: dict[int, Row] = field(default_factory=dict)
    """By `seq`."""
    stale: dict[str, Row] = field(default_factory=dict)
    inbox: dict[str, Row] = field(default_factory=dict)
    documents: dict[str, Row] = field(default_factory=dict)
    pauses: dict[str, str] = field(default_factory=dict)
    """Reason by stage."""
    counts: dict[str, Count] = field(default_factory=dict)
    """By stage."""
    letters: list[DeadLetter] = field(default_factory=list)
    limits: JobLimits = field(default_factory=JobLimits)
    starts: dict[tuple[str, int], Row] = field(default_factory=dict)
    """By job and attempt; all are kept."""
    _generation: int = 0

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work`; the tables are as before when it raises."""
        before = {name: {key: dict(row) for key, row in getattr(self, name).items()} for name in _TABLES}
        try:
            return work(cast("JobsTx", self))
        except BaseException:
            vars(self).update(before)
            raise

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads."""
        return work(cast("JobsTx", self))

    # A submit

    def root_of(self, caller_id: str) -> str:
        return caller_id

    def insert_jobs(
        self, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None], spent: Amounts
    ) -> set[str]:
        inserted = set()
        for new in jobs:
            if new.job_id in self.jobs or (not new.forced and self.jobs_in_flight([new.target.document_id])):
                continue
            now, target = self.clock.now(), new.target
            row = self.jobs[new.job_id] = {
                **dict.fromkeys(_UNSET),
                **_NEW,
                **target.model_dump(exclude={"url"}),
                **{name: getattr(new, name) for name in _COPIED},
                **{"budget": new.budget.model_dump() if new.budget else None},
                **{"id": new.job_id, "url": new.submitted_url, "canonical_url": target.url},
                **{"created_at": now, "updated_at": now, "expected_by": expected[new.job_id]},
                **{"raw_ref": new.given.model_dump(mode="json") if new.given else None},
                **{"previous": published.previous(self.jobs, self.documents.get(target.document_id))},
            }
            self._note(row, None)
            self._keep(published.with_known(new, row["previous"], self), claimed_until=None)
            inserted.add(new.job_id)
        return inserted

    def jobs_in_flight(self, document_ids: Sequence[str], job_ids: Sequence[str] = ()) -> list[InFlight]:
        return [
            as_in_flight({**row, "expected_by": self._still(row["expected_by"])})
            for row in self.jobs.values()
            if row["document_id"] in document_ids
            and (row["id"] in job_ids or (row["status"] not in _ENDED and not row["forced"]))
        ]

    def unmet_dependencies(self, job_id: str) -> dict[str, JobStatus]:
        return {}

    # Admission

    def usage(self, caller_id: str, tier: str) -> tuple[Usage, GlobalUsage, int]:
        own = [row for row in self.jobs.values() if row["caller_id"] == caller_id]
        pending = sum(row["status"] == "pending" for row in own)
        active = sum(row["status"] not in ("pending", *_ENDED) for row in own)
        return self._usage(caller_id, tier, active), self._usage_of_all(), pending

    def pace(self) -> Pace:
        return Pace()

    def due_sites(self, most: int) -> list[Any]:
        return []

    def queues_to_admit(
        self, callers: Sequence[str], done: Sequence[str]
    ) -> tuple[list[CallerQueue], GlobalUsage] | None:
        queues = []
        for caller_id in self.waiting_callers():
            rows = sorted((row for row in self._pending() if row["caller_id"] == caller_id), key=_turn)
            usage, _, _ = self.usage(caller_id, rows[-1]["tier"])
            jobs = [Candidate(row["id"], row["priority"], row["created_at"]) for row in rows]
            queues.append(CallerQueue(usage, jobs))
        return queues, self._usage_of_all()

    def start_jobs(self, job_ids: Sequence[str], spent: Amounts) -> list[OutboxRow]:
        started = []
        for job_id in job_ids:
            row, now = self.jobs[job_id], self.clock.now()
            self._move(row, row["resume_stage"] or FIRST, admitted_at=now)
            self.starts[job_id, row["attempt"]] = {"caller_id": row["caller_id"], "at": now}
            own = [each for each in self.outbox.values() if each["job_id"] == job_id and is_unsent(each)]
            started += self._claimed([each for each in own if each["claimed_until"] is None])
        return started

    def positions(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        queue = sorted((row for row in self._pending() if row["caller_id"] == caller_id), key=_turn)
        found = {row["id"]: (at, row["tier"]) for at, row in enumerate(queue, 1)}
        return {each: found[each] for each in job_ids if each in found}

    def waiting_callers(self) -> list[str]:
        return sorted({row["caller_id"] for row in self._pending()})

    # Reads

    def job(self, caller_id: str, job_id: str) -> Job | None:
        return as_job(published.shown(self.jobs[job_id])) if self._own(caller_id, job_id) else None

    def job_events(self, caller_id: str, job_id: str, seq: int) -> JobSnapshot | None:
        job = self.job(caller_id, job_id)
        own = [row for row in self.job_history.values() if row["job_id"] == job_id]
        events = [as_event(row) for row in own if row["seq"] > seq]
        return JobSnapshot(job, own[-1]["seq"], events) if job else None

    def original(self, caller_id: str, job_id: str) -> Original | None:
        return as_original(published.shown(self.jobs[job_id])) if self._own(caller_id, job_id) else None

    def holds(self) -> list[Hold]:
        return [Hold("paused", stage) for stage in self.pauses]

    def other_model(self) -> bool:
        """Return that every document has vectors of today's model."""
        return False

    def state(self, job_id: str) -> JobState | None:
        row = self.jobs.get(job_id)
        return as_state({**published.stated(row), "next_generation": 0}) if row else None

    # Job actions

    def lock_job(self, caller_id: str, job_id: str) -> LockedJob | None:
        return as_locked_job(self._locked(job_id)) if self._own(caller_id, job_id) else None

    def lock_batch(self, caller_id: str, batch_id: str, most: int) -> list[LockedJob]:
        own = {each: row["status"] for each, row in self.jobs.items() if row["batch_id"] == batch_id}
        open_ = sorted(each for each in own if own[each] not in _ENDED)[:most]
        return [job for each in open_ if (job := self.lock_job(caller_id, each))]

    def cancel_jobs(
        self, jobs: Mapping[str, JobStatus], errors: Sequence[JobError], request_id: str | None
    ) -> None:
        for job_id, error in zip(jobs, errors, strict=True):
            self.jobs[job_id].update({"request_id": request_id} if request_id else {})
            self._fail(self.jobs[job_id], error)

    def has_message(self, job_id: str, message_id: str) -> bool:
        return message_id in self.outbox

    def published_since(self, document_id: str, at: datetime) -> bool:
        row = self.documents.get(document_id)
        return row is not None and row["published"] is not None and row["updated_at"] > at

    def kept_payloads(self, job_id: str) -> dict[str, str]:
        return {row["stage"]: row["payload"] for row in self.outbox.values() if row["job_id"] == job_id}

    def restart_job(
        self, row: OutboxRow, generation: int | None, request_id: str | None, *, blocked: bool
    ) -> None:
        job = self.jobs[row.job_id]
        job["generation"] = generation or job["generation"]
        job["request_id"] = request_id or job["request_id"]
        self._park(row.job_id)
        self._keep(row, claimed_until=None)
        cleared = dict.fromkeys(("failed_stage", "error", "admitted_at", "ended_at", "expected_by"))
        cleared |= {"page_change": None} if job["page_change"] == "removed" else {}
        self._move(job, "pending", attempt=row.attempt, resume_stage=row.stage, **cleared, **_NO_RETRY)

    # Results

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        return {each: as_state(self._locked(each)) for each in job_ids if each in self.jobs}

    def spent(self, job_ids: Sequence[str]) -> dict[str, Spent]:
        return {}

    def receive(self, message_ids: Sequence[str]) -> set[str]:
        new = set(message_ids) - self.inbox.keys()
        self.inbox |= {each: {} for each in new}
        return new

    def forget(self, message_ids: Sequence[str]) -> None:
        for each in message_ids:
            self.inbox.pop(each, None)

    def save_results(self, changes: Mapping[str, Change], transitions: Sequence[Transition]) -> None:
        for each in transitions:
            row, to = self.jobs[each.state.job_id], each.change.status or each.state.status
            columns = {"status": to.value, "error": self._timed(each.change.error)}
            self._note({**row, **columns}, each.state.status.value)
            for message in each.change.outbox:
                self._keep(message, claimed_until=self.clock.now() + CLAIM)
        for job_id, update in changes.items():
            row, now, error = self.jobs[job_id], self.clock.now(), self._timed(update.error)
            stage = update.error.stage if update.error else None
            kept: Row = {name: getattr(update, name) for name in ("title", "chunk_count", "generation")}
            kept["raw_ref"] = update.stored.model_dump(mode="json") if update.stored else None
            row.update({name: value for name, value in kept.items() if value is not None}, **_NO_RETRY)
            row.update(status=update.status and update.status.value, error=error, failed_stage=stage)
            row.update(updated_at=now, ended_at=now if update.ended else None)
            row["determinism"] = {**(row["determinism"] or {}), **update.facts}
            row.update(page_change=update.change or row["page_change"], unchanged=update.unchanged)

    def note_stale(self, results: Sequence[StageResult]) -> None:
        self.stale |= {each.message_id: {"job_id": each.job_id, "attempt": each.attempt} for each in results}

    def save_retries(self, notes: Mapping[str, Retrying]) -> None:
        for job_id, note in notes.items():
            now, wait_s = self.clock.now(), note.retry_in_s
            again = note.next_retry_at if wait_s is None else now + timedelta(seconds=wait_s)
            job = self.jobs[job_id]
            if job["next_retry_at"] is not None and job["next_retry_at"] > again:
                continue
            said = job["last_error"] if job["retry_cause"] else None
            if note.failure is not None:
                said = {**note.failure.model_dump(), "stage": job["status"], "at": now}
            job.update(tries=note.tries, next_retry_at=again, updated_at=now)
            job.update(retry_cause=note.cause, last_error=said)

    def redispatch(self, row: OutboxRow, generation: int | None) -> None:
        self._keep(row, claimed_until=self.clock.now() + CLAIM)
        job = self.jobs[row.job_id]
        job.update(generation=generation or job["generation"], updated_at=self.clock.now())

    lock_documents, raise_fences = published.lock_documents, published.raise_fences
    keep_published, mark_stale = published.keep, published.mark_stale

    # Duplicates are left out: what needs them runs on Postgres.

    def lock_originals(self, documents: Collection[str]) -> None:
        """Lock nothing."""

    def originals_of(self, documents: Collection[str]) -> dict[str, str]:
        return {}

    def published_texts(self, documents: Collection[str]) -> dict[str, Any]:
        return {}

    def keep_duplicates(self, read: Collection[str], rows: Sequence[Any]) -> None:
        """Keep nothing."""

    def mark_outdated(
        self, originals: Collection[str], pages: Collection[str], unread: Collection[str]
    ) -> None:
        """Mark nothing."""

    def due_duplicates(self, most: int) -> list[Any]:
        return []

    # Counts of the sweeper

    def last_counts(self, stages: Collection[str]) -> dict[str, Count]:
        return dict(self.counts)

    def keep_counts(self, counts: Mapping[str, Count]) -> None:
        self.counts |= counts

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        for kept in self.letters:
            if (kept.queue, kept.source_id or "") == (letter.queue, letter.source_id):
                return kept.receive_count == letter.receive_count
        self.letters.append(letter)
        return True

    # Rows

    def _still(self, at: datetime | None) -> datetime | None:
        return at if at is not None and at > self.clock.now() else None

    def document(self, document_id: str) -> Row:
        """Return the catalogue's row of a document, which is made when there is none."""
        names = ("published", "updated_at", "job_id", "content_sha256", "stale_since", "text_generation")
        return self.documents.setdefault(document_id, {**dict.fromkeys(names), "min_generation": 0})

    def _usage(self, caller_id: str, tier: str, active: int) -> Usage:
        now = self.clock.now()
        at = sorted(row["at"] for row in self.starts.values() if row["caller_id"] == caller_id)
        hour = [each for each in at if each > now - timedelta(hours=1)]
        minute = [each for each in hour if each > now - timedelta(minutes=1)]
        first, since, last = next(iter(hour), None), next(iter(minute), None), max(hour, default=None)
        return Usage(caller_id, tier, active, len(hour), len(minute), first, since, last)

    def _usage_of_all(self) -> GlobalUsage:
        in_flight = (row for row in self.jobs.values() if row["status"] not in ("pending", *_ENDED))
        at_work = [row["caller_id"] for row in in_flight]
        paused = not self.pauses.keys().isdisjoint(("*", FIRST))
        return GlobalUsage(self.clock.now(), len(at_work), len(set(at_work)), paused)

    def _own(self, caller_id: str, job_id: str) -> bool:
        return self.jobs.get(job_id, {}).get("caller_id") == caller_id

    def _locked(self, job_id: str) -> Row:
        self._generation += 1
        return {**published.stated(self.jobs[job_id]), "next_generation": self._generation}

    def _pending(self) -> list[Row]:
        return [row for row in self.jobs.values() if row["status"] == "pending"]

    def _timed(self, error: JobError | None) -> Row | None:
        now = self.clock.now().isoformat()
        return {**error.model_dump(mode="json", exclude_none=True), "at": now} if error else None

    def _note(self, job: Row, before: str | None) -> None:
        row = {"seq": len(self.job_history) + 1, "job_id": job["id"], "attempt": job["attempt"]}
        row |= {"from_status": before, "to_status": job["status"], "detail": job["error"]}
        self.job_history[row["seq"]] = {**row, "at": self.clock.now().isoformat()}

    def _move(self, job: Row, to: str, **columns: Any) -> None:
        before = job["status"]
        job.update(status=to, updated_at=self.clock.now(), **columns)
        self._note(job, before)

    def _fail(self, job: Row, error: JobError) -> None:
        self._park(job["id"])
        columns = {"error": error.model_dump(mode="json", exclude_none=True), "failed_stage": error.stage}
        self._move(job, "failed", ended_at=self.clock.now(), **columns, **_NO_RETRY)


def _turn(row: Row) -> tuple[datetime, str]:
    return row["created_at"] - timedelta(seconds=SECONDS_PER_POINT * row["priority"]), row["id"]
