"""A job store in memory, with the real one's semantics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.admission import Floor, choose
from indexmill.orchestrator.changes import Final, Ledger
from indexmill.orchestrator.forecast import check_room, expected_by
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
from indexmill.orchestrator.quotas import Limits
from indexmill.platform.clock import Clock
from indexmill.testing import job_lines
from indexmill.testing.job_lines import Record

_CLAIM = timedelta(seconds=30)
_AFTER_FAILURE = timedelta(seconds=10)
_STUCK = timedelta(minutes=30)
_PARK_AFTER = 10
_HELD = datetime.max.replace(tzinfo=UTC)
"""A message of a job that is not admitted yet is nobody's to send."""


@dataclass
class _Row:
    row: OutboxRow
    claimed_until: datetime
    created: int
    sent: bool = False
    parked: bool = False
    tries: int = 0


@dataclass
class InMemoryJobs:
    """JobStore without a database."""

    clock: Clock
    records: dict[str, Record] = field(default_factory=dict)
    rows: dict[str, _Row] = field(default_factory=dict)
    history: list[tuple[str, int, str | None, str]] = field(default_factory=list)
    events: dict[str, list[JobEvent]] = field(default_factory=dict)
    """The history of each job, numbered over all jobs."""
    inbox: set[str] = field(default_factory=set)
    letters: list[DeadLetter] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    paused: bool = False
    """Whether an operator holds the first stage back."""
    _generation: int = 0

    def submit(self, jobs: Sequence[NewJob]) -> Submission:
        """Accept the jobs; the same ids again change nothing."""
        promises = self._promises(jobs)
        accepted = [self._accept(new, by) for new, by in zip(jobs, promises, strict=True)]
        return Submission(accepted, self.admit_all(), max(promises))

    def _promises(self, jobs: Sequence[NewJob]) -> list[datetime]:
        records, caller_id = self.records.values(), jobs[0].target.caller_id
        used = job_lines.usage(records, caller_id, jobs[0].tier, self.clock.now())
        own = [each for each in records if each.caller_id == caller_id]
        pending = sum(each.job.status is JobStatus.PENDING for each in own)
        pace, floor = job_lines.pace(records), self._floor()
        check_room(pending, len(jobs), used, self.limits, floor, pace)
        return [expected_by(pending + at, used, self.limits, floor, pace) for at in range(len(jobs))]

    def _floor(self) -> Floor:
        return job_lines.floor(self.records.values(), self.clock.now(), paused=self.paused)

    def _accept(self, new: NewJob, expected: datetime) -> Accepted:
        if new.job_id in self.records:
            return Accepted(new.job_id, JobStatus.PENDING)
        known = self._in_flight(new)
        if known is not None:
            return Accepted(known.job_id, known.status, deduplicated=True)
        record = Record(self._new_job(new, expected), new.target, new.target.caller_id, new.forced, new.tier)
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

    def admit_all(self) -> list[OutboxRow]:
        """Let every pending job start that may and return its message, claimed."""
        now = self.clock.now()
        chosen = choose(job_lines.lines(self.records.values(), now), self.limits, self._floor())
        return [self._start(self.records[job_id], now) for job_id in chosen.start]

    def _start(self, record: Record, now: datetime) -> OutboxRow:
        job = record.job
        record.admitted_at = now
        self._show(record, status=JobStatus(FIRST), updated_at=now)
        self.history.append((job.job_id, job.attempt, "pending", FIRST))
        self._happened(job.job_id, job.attempt, FIRST, None)
        (row,) = (
            each
            for each in self.rows.values()
            if each.row.job_id == job.job_id and each.claimed_until == _HELD
        )
        row.claimed_until = now + _CLAIM
        return row.row

    def _new_job(self, new: NewJob, expected: datetime) -> Job:
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
            expected_by=expected,
        )

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None."""
        record = self.records.get(job_id)
        return self._told(record) if record and record.caller_id == caller_id else None

    def _told(self, record: Record) -> Job:
        waiting = job_lines.waiting(record, self.records.values(), self.limits, self._floor())
        return record.job.model_copy(update={"waiting": waiting})

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
        own = [self._told(each) for each in self.records.values() if each.caller_id == wanted.caller_id]
        jobs = [job for job in own if job_lines.matches(job, wanted)]
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
        return ledger.with_admitted(changes, self.admit_all() if ledger.callers_with_room() else [])

    def _finish(self, final: Final) -> None:
        record = self.records[final.job_id]
        record.ended_at = self.clock.now() if final.status.terminal else None
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

    def _show(self, record: Record, **changed: Any) -> None:
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
            self.rows[message_id].sent = True

    def mark_failed(self, ids: Sequence[str], error: str) -> None:
        """Give claimed messages back after a failed try."""
        for message_id in ids:
            row = self.rows[message_id]
            row.tries += 1
            row.claimed_until = self.clock.now() + _AFTER_FAILURE
            row.parked = row.tries >= _PARK_AFTER and row.row.kind == "queue"

    def rescue(self, limit: int) -> list[OutboxRow]:
        """Return the kept message of each job that nothing happened to for 30 minutes."""
        now = self.clock.now()
        found: list[OutboxRow] = []
        for record in self.records.values():
            job = record.job
            if job.status.terminal or job.updated_at >= now - _STUCK or len(found) == limit:
                continue
            kept = [row for row in self.rows.values() if _keeps(row, job) and (row.sent or row.parked)]
            if not kept:
                continue
            row = max(kept, key=lambda row: row.created)
            row.sent, row.parked, row.tries, row.claimed_until = False, False, 0, now + _CLAIM
            record.job = job.model_copy(update={"updated_at": now})
            found.append(row.row)
        return found

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled."""
        self.letters.append(letter)


def _keeps(row: _Row, job: Job) -> bool:
    return (row.row.job_id, row.row.stage, row.row.attempt) == (job.job_id, job.status.value, job.attempt)
