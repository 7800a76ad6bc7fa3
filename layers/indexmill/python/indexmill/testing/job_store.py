"""A job store in memory, with the real one's semantics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.admission import Floor, choose
from indexmill.orchestrator.changes import Final, Ledger
from indexmill.orchestrator.forecast import expectations, last_of
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
    Once,
    OutboxRow,
    Submission,
)
from indexmill.orchestrator.quotas import Limits
from indexmill.orchestrator.resend import Renewal, renewed
from indexmill.orchestrator.retryable import retryable
from indexmill.testing import job_dependencies, job_lines
from indexmill.testing.job_outbox import InMemoryOutbox
from indexmill.testing.job_records import (
    CLAIM,
    HELD,
    KEY_LIFE,
    CatalogueRow,
    KeptAnswer,
    Record,
    Row,
    first_shown,
    keeps,
    matches,
)


@dataclass
class InMemoryJobs(InMemoryOutbox):
    """JobStore without a database."""

    records: dict[str, Record] = field(default_factory=dict)
    history: list[tuple[str, int, str | None, str]] = field(default_factory=list)
    events: dict[str, list[JobEvent]] = field(default_factory=dict)
    """The history of each job, numbered over all jobs."""
    inbox: set[str] = field(default_factory=set)
    letters: list[DeadLetter] = field(default_factory=list)
    keys: dict[tuple[str, str], KeptAnswer] = field(default_factory=dict)
    catalogue: dict[str, CatalogueRow] = field(default_factory=dict)
    """By document id."""
    limits: Limits = field(default_factory=Limits)
    paused: bool = False
    """Whether an operator holds the first stage back."""
    _generation: int = 0

    def submit(self, jobs: Sequence[NewJob], once: Once | None = None) -> Submission:
        """Accept the jobs; the same ids again change nothing."""
        caller_id = jobs[0].target.caller_id
        known = self.keys.get((caller_id, once.key)) if once else None
        if once and known and known.at > self.clock.now() - KEY_LIFE:
            return Submission([], [], answer=known.answer_to(once))
        job_dependencies.check(self, caller_id, jobs[0].depends_on)
        before = set(self.records)
        promises = self._promises(jobs)
        accepted = [self._accept(new, promises[new.job_id]) for new in jobs]
        expected = last_of(each.expected_by for each in accepted)
        job_dependencies.connect(self, [job_id for job_id in self.records if job_id not in before])
        if once:
            answer = once.answer(accepted, expected)
            self.keys[caller_id, once.key] = KeptAnswer(once.digest, answer, self.clock.now())
        return Submission(accepted, self.admit_all(), expected_by=expected)

    def _promises(self, jobs: Sequence[NewJob]) -> dict[str, datetime | None]:
        records, caller_id = self.records.values(), jobs[0].target.caller_id
        used = job_lines.usage(records, caller_id, jobs[0].tier, self.clock.now())
        own = [each for each in records if each.caller_id == caller_id]
        pending = sum(each.job.status is JobStatus.PENDING for each in own)
        return expectations(pending, jobs, used, self.limits, self._floor(), job_lines.pace(records))

    def _floor(self) -> Floor:
        return job_lines.floor(self.records.values(), self.clock.now(), paused=self.paused)

    def _accept(self, new: NewJob, expected: datetime | None) -> Accepted:
        if new.job_id in self.records:
            return Accepted(
                new.job_id, JobStatus.PENDING, expected_by=self.records[new.job_id].job.expected_by
            )
        known = None if new.forced else self.in_flight(new.target.document_id)
        if known is not None:
            return Accepted(known.job_id, known.status, deduplicated=True, expected_by=known.expected_by)
        shown = first_shown(new, self.clock.now(), expected)
        record = Record(shown, new.target, new.target.caller_id, new.forced, tier=new.tier)
        record.depends_on, record.payload_digest = new.depends_on, new.payload_digest
        self.records[new.job_id] = record
        self.history.append((new.job_id, 1, None, "pending"))
        self._happened(new.job_id, 1, "pending", None)
        self.keep(new.first, HELD)
        return Accepted(new.job_id, JobStatus.PENDING, expected_by=expected)

    def in_flight(self, document_id: str) -> Job | None:
        """Return the job that is at work on the document, unless it was forced."""
        same = (
            record.job
            for record in self.records.values()
            if record.target.document_id == document_id
            and not record.forced
            and not record.job.status.terminal
        )
        return next(same, None)

    def admit_all(self) -> list[OutboxRow]:
        """Let every pending job start that may and return its message, claimed."""
        now = self.clock.now()
        chosen = choose(job_lines.lines(self.records.values(), now), self.limits, self._floor())
        return [row for job_id in chosen.start for row in self._start(self.records[job_id])]

    def _start(self, record: Record) -> list[OutboxRow]:
        now = record.admitted_at = self.clock.now()
        self.move(record, JobStatus(record.resume_stage or FIRST))
        held = [row for row in self.rows.values() if keeps(row, record.job) and row.claimed_until == HELD]
        for row in held:
            row.claimed_until = now + CLAIM
        return [row.row for row in held]

    def move(self, record: Record, to: JobStatus, **changed: Any) -> None:
        """Give the job another status, and the history its row."""
        before = record.job.status.value
        self.show(record, status=to, updated_at=self.clock.now(), **changed)
        job = record.job
        self.history.append((job.job_id, job.attempt, before, to.value))
        self._happened(job.job_id, job.attempt, to.value, job.error)

    def fail(self, record: Record, error: JobError) -> None:
        """Fail the job by somebody's word; what was not sent stays here."""
        record.blocked_by, record.ended_at = None, self.clock.now()
        self.park(record.job.job_id)
        waits = {"attempts": error.attempts, "next_retry_at": None}
        self.move(record, JobStatus.FAILED, error=error, failed_stage=error.stage, **waits)

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None."""
        record = self.records.get(job_id)
        return self.told(record) if record and record.caller_id == caller_id else None

    def told(self, record: Record) -> Job:
        """Return the job with what it waits for."""
        waiting = job_lines.waiting(record, self.records, self.limits, self._floor())
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
        own = [self.told(each) for each in self.records.values() if each.caller_id == wanted.caller_id]
        jobs = [job for job in own if matches(job, wanted)]
        jobs.sort(key=lambda job: (job.created_at, job.job_id), reverse=True)
        return jobs[: wanted.limit]

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it."""
        record = self.records.get(job_id)
        return self.state_of(record) if record is not None else None

    def state_of(self, record: Record) -> JobState:
        """Return the job as decisions see it, with what search sees of its document."""
        job = record.job
        seen = self.catalogue.get(record.target.document_id, CatalogueRow()).published
        visible = record.issued is not None and (seen or 0) >= record.issued
        return JobState(
            job.job_id,
            job.status,
            job.attempt,
            record.target,
            generation=0,
            title=job.title,
            issued=record.issued,
            visible=visible,
        )

    def next_generation(self) -> int:
        """Return a number larger than every one before."""
        self._generation += 1
        return self._generation

    def fence(self, fences: Mapping[str, int]) -> None:
        """Refuse these generations, by document id, and all before them."""
        for document_id, generation in fences.items():
            row = self.catalogue.setdefault(document_id, CatalogueRow())
            row.min_generation = max(row.min_generation, generation + 1)

    def apply(self, results: Sequence[StageResult], decide: Decide) -> list[Change]:
        """Decide about each result in order and keep every change."""
        states = {}
        for job_id in sorted({result.job_id for result in results if result.job_id}):
            state = self.state(job_id)
            if state is not None:
                states[job_id] = replace(state, generation=self.next_generation())
        fresh = {result.message_id for result in results} - self.inbox
        ledger = Ledger(states, set(fresh), decide)
        changes = [ledger.take(result) for result in results]
        self.inbox |= fresh - set(ledger.early)
        for move in ledger.moves:
            self.history.append((move.job_id, move.attempt, move.from_status.value, move.to_status.value))
            self._happened(move.job_id, move.attempt, move.to_status.value, self._timed(move.change.error))
            for row in move.change.outbox:
                self.keep(row, self.clock.now() + CLAIM)
        for final in ledger.finals.values():
            self._finish(final)
        for job_id, note in ledger.notes.items():
            now, wait = self.clock.now(), note.retry_in_s
            again = note.next_retry_at if wait is None else now + timedelta(seconds=wait)
            waits = {"attempts": note.tries, "next_retry_at": again}
            self.show(self.records[job_id], **waits, updated_at=now)
        self.fence(ledger.fences())
        job_dependencies.settle(self, ledger.ended())
        more = self._send_again(ledger)
        return ledger.with_more(changes, more + (self.admit_all() if ledger.callers_with_room() else []))

    def _timed(self, error: JobError | None) -> JobError | None:
        return error.model_copy(update={"at": self.clock.now()}) if error else None

    def _finish(self, final: Final) -> None:
        record = self.records[final.job_id]
        record.issued = final.generation if final.generation is not None else record.issued
        record.stored = final.stored or record.stored
        record.facts = {**record.facts, **final.facts}
        record.ended_at = self.clock.now() if final.status.terminal else None
        count = final.chunk_count if final.chunk_count is not None else record.job.chunk_count
        self.show(
            record,
            status=final.status,
            error=self._timed(final.error),
            failed_stage=final.error.stage if final.error else None,
            title=final.title or record.job.title,
            chunk_count=count,
            updated_at=self.clock.now(),
            attempts=final.error.attempts if final.error else None,
            next_retry_at=None,
        )

    def waits(self, row: Row) -> None:
        """Let the job of a call tell until when it waits."""
        record = self.records[row.row.job_id]
        if keeps(row, record.job):
            waits = {"attempts": row.tries or None, "next_retry_at": row.claimed_until}
            self.show(record, **waits, updated_at=self.clock.now())

    def show(self, record: Record, **changed: Any) -> None:
        """Change the job, and what a person reads of it."""
        job = record.job.model_copy(update=changed)
        texts = {
            "user_message": user_message(job.status, job.error),
            "progress": progress(job.status, job.failed_stage),
            "retryable": retryable(job.status, job.error),
        }
        record.job = job.model_copy(update=texts)

    def _send_again(self, ledger: Ledger) -> list[OutboxRow]:
        rows = []
        for job_id, again in ledger.again.items():
            state = ledger.states[job_id]
            renewal = Renewal(again.message_id, state.attempt, again.generation)
            stage = state.status.value
            rows.append(renewed(state, stage, self.kept(job_id).get(stage), renewal))
            self.keep(rows[-1], self.clock.now() + CLAIM)
            self.records[job_id].issued = again.generation
        return rows

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled, once."""
        known = {(kept.queue, kept.source_id) for kept in self.letters if kept.source_id is not None}
        if (letter.queue, letter.source_id) not in known:
            self.letters.append(letter)
