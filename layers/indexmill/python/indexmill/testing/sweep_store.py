"""The sweeper's view of the in-memory job store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from indexmill.contracts.job import Job
from indexmill.orchestrator.accounting import agree
from indexmill.orchestrator.pipeline import BY_NAME
from indexmill.orchestrator.ports_sweep import MOST_RESCUES, PASSED_FOR, Count, Retention, Silent
from indexmill.testing.job_records import Record, Row
from indexmill.testing.job_store import InMemoryJobs

_STUCK = timedelta(minutes=30)
_SLACK = timedelta(seconds=60)


@dataclass
class InMemorySweep:
    """SweepStore, and the admission of everybody, over `jobs`."""

    jobs: InMemoryJobs
    counts: dict[str, Count] = field(default_factory=dict)
    paused: dict[str, str] = field(default_factory=dict)
    open_incidents: dict[str, dict[str, Mapping[str, object]]] = field(default_factory=dict)

    def now(self) -> datetime:
        """Return the clock's time."""
        return self.jobs.clock.now()

    def outside(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox."""
        found: Counter[str] = Counter()
        for record, row in self._waiting():
            inside = row is not None and not row.parked and (row.sent_at is None or row.sent_at > before)
            found[record.job.status.value] += not inside
        return {stage: number for stage, number in found.items() if number}

    def confirm(self, counts: Mapping[str, Count]) -> Mapping[str, int]:
        """Keep the counts and return what they and those before agree on."""
        found = agree(self.counts, counts)
        self.counts |= {stage: counts[stage] for stage in found}
        return found

    def silent(self, stage: str, limit: int, before: datetime, *, passed: bool) -> list[Silent]:
        """Return jobs of `stage` whose message is out: longest without an event first."""
        found, reached = [], self._reached()
        for record, row in self._waiting():
            if record.job.status.value != stage or row is None:
                continue
            out = row.parked or (row.sent_at is not None and row.sent_at <= before)
            old = record.job.updated_at < self.now() - _STUCK
            if out and (not passed or row.parked or old or _passed(record, row, reached)):
                found.append((self._rank(record, row), record, row))
        found.sort(key=lambda each: each[0])
        return [self._silent(record, row) for _, record, row in found[:limit]]

    def passed(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were passed by others that moved just now."""
        found: Counter[str] = Counter()
        since = self.now() - PASSED_FOR
        reached = self._reached(since)
        for record, row in self._waiting():
            job = record.job
            waits = job.next_retry_at is not None and job.next_retry_at > self.now()
            if row is None or row.parked or row.sent_at is None or waits:
                continue
            old = row.sent_at <= before and job.updated_at < since
            found[job.status.value] += old and _passed(record, row, reached)
        return {stage: number for stage, number in found.items() if number}

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[Silent]:
        """Return jobs without an event for 30 minutes, less those that wait for a known reason."""
        found, reached = [], self._reached()
        for record, row in self._waiting():
            stage, job = record.job.status.value, record.job
            if job.updated_at >= self.now() - _STUCK or stage not in (*empty, *busy):
                continue
            recent = job.next_retry_at is not None and job.next_retry_at >= self.now() - _STUCK
            unsent = row is not None and not row.sent and not row.parked
            if recent or unsent:
                continue
            if stage in empty or row is None or row.parked or _passed(record, row, reached):
                found.append(self._silent(record, row))
        return sorted(found, key=lambda each: each.updated_at)[:limit]

    def send_again(self, jobs: Sequence[Silent]) -> int:
        """Hand kept messages to the relay, unless something happened to their job meanwhile."""
        done = 0
        for each in jobs:
            record = self.jobs.records[each.job_id]
            row = self.jobs.rows.get(each.message_id or "")
            if row is None or record.job.updated_at != each.updated_at or record.job.status.terminal:
                continue
            row.sent_at, row.parked, row.tries, row.claimed_until = None, False, 0, self.now()
            row.rescues += 1
            record.job = record.job.model_copy(update={"updated_at": self.now()})
            done += 1
        return done

    def parked(self) -> int:
        """Return how many messages were set aside that a job waits for."""
        return sum(row is not None and row.parked for _, row in self._waiting())

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete messages of jobs that ended long ago; the rest has no age here."""
        ended = {
            record.job.job_id
            for record in self.jobs.records.values()
            if record.job.status.terminal and record.job.updated_at < self.now() - keep.payloads
        }
        old = [
            key for key, row in self.jobs.rows.items() if row.row.job_id in ended and (row.sent or row.parked)
        ][:limit]
        for key in old:
            del self.jobs.rows[key]
        return {"outbox": len(old)}

    def pauses(self) -> Mapping[str, str]:
        """Return why a stage is held back."""
        return dict(self.paused)

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` the open incidents of `kind`."""
        before = self.open_incidents.get(kind, {})
        opened = [subject for subject in current if subject not in before]
        closed = [subject for subject in before if subject not in current]
        self.open_incidents[kind] = {**current, **{key: before[key] for key in before if key in current}}
        return opened, closed

    def _waiting(self) -> Iterator[tuple[Record, Row | None]]:
        """Jobs that wait for a stage, with the newest message of that stage and attempt."""
        newest: dict[tuple[str, str, int], Row] = {}
        for row in self.jobs.rows.values():
            newest[row.row.job_id, row.row.stage, row.row.attempt] = row
        for record in self.jobs.records.values():
            job = record.job
            if job.status.value in BY_NAME:
                yield record, newest.get((job.job_id, job.status.value, job.attempt))

    def _reached(self, since: datetime | None = None) -> dict[tuple[str, str], datetime]:
        """How far each caller has got in each stage: when the newest message was sent that is done.

        With `since` only by jobs that something happened to after that.
        """
        found: dict[tuple[str, str], datetime] = {}
        for row in self.jobs.rows.values():
            owner = self.jobs.records[row.row.job_id]
            lately = since is None or owner.job.updated_at > since
            if row.sent_at is not None and lately and not _of(row, owner.job):
                key = row.row.stage, owner.caller_id
                found[key] = max(row.sent_at, found.get(key, row.sent_at))
        return found

    def _rank(self, record: Record, row: Row) -> tuple[bool, bool, bool, datetime, str]:
        job = record.job
        waits = job.next_retry_at is not None and job.next_retry_at > self.now()
        return not row.parked, row.rescues >= MOST_RESCUES, waits, job.updated_at, job.job_id

    def _silent(self, record: Record, row: Row | None) -> Silent:
        job = record.job
        return Silent(
            job_id=job.job_id,
            caller_id=record.caller_id,
            stage=job.status.value,
            attempt=job.attempt,
            url=job.url,
            updated_at=job.updated_at,
            stuck_for=self.now() - job.updated_at,
            message_id=row.row.id if row else None,
            rescues=row.rescues if row else 0,
            parked=row.parked if row else False,
        )


def _passed(record: Record, row: Row, reached: Mapping[tuple[str, str], datetime]) -> bool:
    until = reached.get((record.job.status.value, record.caller_id))
    return until is not None and row.sent_at is not None and row.sent_at < until - _SLACK


def _of(row: Row, job: Job) -> bool:
    return (row.row.job_id, row.row.stage, row.row.attempt) == (job.job_id, job.status.value, job.attempt)
