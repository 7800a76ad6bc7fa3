"""A job store in memory, with the real one's semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import StageResult, Target
from indexmill.orchestrator.changes import Final, Ledger
from indexmill.orchestrator.pipeline import FIRST, progress, user_message
from indexmill.orchestrator.ports import (
    Accepted,
    Change,
    DeadLetter,
    Decide,
    JobEvent,
    JobFilter,
    JobNews,
    JobState,
    NewJob,
    OutboxRow,
    Submission,
)
from indexmill.platform.clock import Clock

_CLAIM = timedelta(seconds=30)
_AFTER_FAILURE = timedelta(seconds=10)
_PARK_AFTER = 10
_HELD = datetime.max.replace(tzinfo=UTC)
"""A message of a job that is not admitted yet is nobody's to send."""


@dataclass
class _Record:
    job: Job
    target: Target
    caller_id: str
    forced: bool = False


@dataclass
class _Row:
    row: OutboxRow
    claimed_until: datetime
    created: int
    sent_at: datetime | None = None
    parked: bool = False
    tries: int = 0
    rescues: int = 0

    @property
    def sent(self) -> bool:
        return self.sent_at is not None


@dataclass
class InMemoryJobs:
    """JobStore without a database."""

    clock: Clock
    records: dict[str, _Record] = field(default_factory=dict)
    rows: dict[str, _Row] = field(default_factory=dict)
    history: list[tuple[str, int, str | None, str]] = field(default_factory=list)
    events: dict[str, list[JobEvent]] = field(default_factory=dict)
    """The history of each job, numbered over all jobs."""
    inbox: set[str] = field(default_factory=set)
    letters: list[DeadLetter] = field(default_factory=list)
    _generation: int = 0

    def submit(self, jobs: Sequence[NewJob]) -> Submission:
        """Accept the jobs; the same ids again change nothing."""
        accepted = [self._accept(new) for new in jobs]
        return Submission(accepted, self.admit([jobs[0].target.caller_id]))

    def _accept(self, new: NewJob) -> Accepted:
        if new.job_id in self.records:
            return Accepted(new.job_id, JobStatus.PENDING)
        known = self._in_flight(new)
        if known is not None:
            return Accepted(known.job_id, known.status, deduplicated=True)
        record = _Record(self._new_job(new), new.target, new.target.caller_id, new.forced)
        self.records[new.job_id] = record
        self.history.append((new.job_id, 1, None, "pending"))
        self._happened(new.job_id, 1, "pending", None)
        self.rows[new.first.id] = _Row(new.first, _HELD, len(self.rows))
        return Accepted(new.job_id, JobStatus.PENDING)

    def _in_flight(self, new: NewJob) -> Job | None:
        same = (
            record.job
            for record in self.records.values()
            if record.target.document_id == new.target.document_id
            and not record.forced
            and not record.job.status.terminal
        )
        return None if new.forced else next(same, None)

    def admit(self, callers: Sequence[str]) -> list[OutboxRow]:
        """Let every pending job of `callers` start and return its message, claimed."""
        admitted: list[OutboxRow] = []
        for record in self.records.values():
            job = record.job
            if job.status is not JobStatus.PENDING or record.caller_id not in callers:
                continue
            self._show(record, status=JobStatus(FIRST), updated_at=self.clock.now())
            self.history.append((job.job_id, job.attempt, "pending", FIRST))
            self._happened(job.job_id, job.attempt, FIRST, None)
            for row in self.rows.values():
                if row.row.job_id == job.job_id and row.claimed_until == _HELD:
                    row.claimed_until = self.clock.now() + _CLAIM
                    admitted.append(row.row)
        return admitted

    def _new_job(self, new: NewJob) -> Job:
        status, now = JobStatus.PENDING, self.clock.now()
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
        )

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None."""
        record = self.records.get(job_id)
        return record.job if record and record.caller_id == caller_id else None

    def events_after(self, caller_id: str, job_id: str, seq: int) -> JobNews | None:
        """Return the caller's job with its events after `seq`."""
        job, events = self.get(caller_id, job_id), self.events.get(job_id, [])
        if job is None:
            return None
        newest = events[-1].seq if events else 0
        return JobNews(job, newest, [event for event in events if event.seq > seq])

    def _happened(self, job_id: str, attempt: int, status: str, error: JobError | None) -> None:
        seq = 1 + sum(map(len, self.events.values()))
        event = JobEvent(seq, attempt, status, self.clock.now(), error)
        self.events.setdefault(job_id, []).append(event)

    def find(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        own = [record.job for record in self.records.values() if record.caller_id == wanted.caller_id]
        jobs = [job for job in own if _matches(job, wanted)]
        jobs.sort(key=lambda job: (job.created_at, job.job_id), reverse=True)
        return jobs[: wanted.limit]

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it."""
        record = self.records.get(job_id)
        if record is None:
            return None
        job = record.job
        return JobState(job.job_id, job.status, job.attempt, record.target, 0, job.title)

    def apply(self, results: Sequence[StageResult], decide: Decide) -> list[Change]:
        """Decide about each result in order and keep every change."""
        states = {}
        for job_id in sorted({result.job_id for result in results if result.job_id}):
            self._generation += 1
            state = self.state(job_id)
            if state is not None:
                states[job_id] = replace(state, generation=self._generation)
        fresh = {result.message_id for result in results} - self.inbox
        ledger = Ledger(states, set(fresh), decide)
        changes = [ledger.take(result) for result in results]
        self.inbox |= fresh - set(ledger.early)
        for move in ledger.moves:
            self.history.append((move.job_id, move.attempt, move.from_status.value, move.to_status.value))
            self._happened(move.job_id, move.attempt, move.to_status.value, move.change.error)
            for row in move.change.outbox:
                self._keep(row)
        for final in ledger.finals.values():
            self._finish(final)
        for job_id, note in ledger.notes.items():
            waits = {"attempts": note.tries, "next_retry_at": note.next_retry_at}
            self._show(self.records[job_id], **waits, updated_at=self.clock.now())
        return ledger.with_admitted(changes, self.admit(ledger.callers_with_room()))

    def _finish(self, final: Final) -> None:
        record = self.records[final.job_id]
        count = final.chunk_count if final.chunk_count is not None else record.job.chunk_count
        self._show(
            record,
            status=final.status,
            error=final.error,
            failed_stage=final.error.stage if final.error else None,
            title=final.title or record.job.title,
            chunk_count=count,
            updated_at=self.clock.now(),
            attempts=final.error.attempts if final.error else None,
            next_retry_at=None,
        )

    def _show(self, record: _Record, **changed: Any) -> None:
        """Change the job, and what a person reads of it."""
        job = record.job.model_copy(update=changed)
        texts = {
            "user_message": user_message(job.status, job.error),
            "progress": progress(job.status, job.failed_stage),
        }
        record.job = job.model_copy(update=texts)

    def _keep(self, row: OutboxRow) -> None:
        self.rows.setdefault(row.id, _Row(row, self.clock.now() + _CLAIM, len(self.rows)))

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that nobody else holds."""
        now = self.clock.now()
        unsent = (row for row in self.rows.values() if not row.sent and not row.parked)
        free = [row for row in unsent if row.claimed_until <= now][:limit]
        for row in free:
            row.claimed_until = now + _CLAIM
        return [replace(row.row, tries=row.tries) for row in free]

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        for message_id in ids:
            self.rows[message_id].sent_at = self.clock.now()

    def mark_failed(self, ids: Sequence[str], error: str) -> None:
        """Give claimed messages back after a failed try."""
        for message_id in ids:
            row = self.rows[message_id]
            row.tries += 1
            row.claimed_until = self.clock.now() + _AFTER_FAILURE
            row.parked = row.tries >= _PARK_AFTER and row.row.kind == "queue"

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled, once."""
        known = {(kept.queue, kept.source_id) for kept in self.letters if kept.source_id is not None}
        if (letter.queue, letter.source_id) not in known:
            self.letters.append(letter)


def _matches(job: Job, wanted: JobFilter) -> bool:
    pairs = (
        (wanted.corpus_name, job.corpus_name),
        (wanted.status, job.status.value),
        (wanted.failed_stage, job.failed_stage),
        (wanted.url, job.url),
    )
    return (
        all(want is None or want == have for want, have in pairs)
        and (wanted.created_after is None or job.created_at >= wanted.created_after)
        and (wanted.created_before is None or job.created_at < wanted.created_before)
        and (wanted.before is None or (job.created_at, job.job_id) < wanted.before)
    )
