"""The sweeper's view of the in-memory job store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from indexmill.contracts.pipeline import BY_NAME
from indexmill.orchestrator.store.rows import MOST_RESCUES
from indexmill.orchestrator.store.sweep import (
    INTERRUPTED_FOR,
    OVERTAKEN_AFTER,
    CallerRow,
    KeptEvent,
    Maintenance,
    Retention,
    StaleJob,
)
from tests.twins.jobs import InMemoryJobs, Row

_STUCK = timedelta(minutes=30)
_SLACK = timedelta(seconds=60)


@dataclass
class InMemorySweep:
    """SweepStore, and the admission of all callers, over `jobs`."""

    jobs: InMemoryJobs
    open_incidents: dict[str, dict[str, Mapping[str, object]]] = field(default_factory=dict)
    closed_incidents: dict[tuple[str, str], datetime] = field(default_factory=dict)
    """When each was last closed, by kind and subject."""
    index_builds: int = 0
    models: dict[str, dict[str, int]] = field(default_factory=dict)
    """Documents and corpora of other models."""
    callers: dict[str, CallerRow] = field(default_factory=dict)
    maintenance: Maintenance = field(default_factory=lambda: Maintenance(None, 1))
    mirrored: dict[str | None, int] = field(default_factory=dict)
    """Copied versions, by caller; None: of the maintenance."""

    def unmirrored(self, limit: int) -> list[CallerRow]:
        """Return callers that are not copied as they are now."""
        found = [row for row in self.callers.values() if self.mirrored.get(row.caller_id) != row.version]
        return sorted(found, key=lambda row: (row.blocked_reason is None, row.root == row.caller_id))[:limit]

    def unmirrored_maintenance(self) -> Maintenance | None:
        """Return it when it is not copied as it is now."""
        return None if self.mirrored.get(None) == self.maintenance.version else self.maintenance

    def mark_mirrored(self, callers: Sequence[CallerRow]) -> None:
        """Record that these versions are copied."""
        self.mirrored.update({row.caller_id: row.version for row in callers})

    def mark_maintenance_mirrored(self, version: int) -> None:
        """Record that this version is copied."""
        self.mirrored[None] = version

    def mirror_all(self) -> None:
        """Record that nothing is copied."""
        self.mirrored.clear()

    def now(self) -> datetime:
        """Return the clock's time."""
        return self.jobs.clock.now()

    def count_unaccounted(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox."""
        found: Counter[str] = Counter()
        for job, row in self._waiting():
            found[job["status"]] += not (row and not row["parked_at"] and not _sent_by(row, before))
        return {stage: number for stage, number in found.items() if number}

    def find_stale(self, stage: str, limit: int, before: datetime, *, overtaken: bool) -> list[StaleJob]:
        """Return jobs of `stage` whose message is out: longest without an event first."""
        found, reached, old = [], self._reached(), self.now() - _STUCK
        for job, row in self._waiting():
            if job["status"] != stage or row is None:
                continue
            lately = overtaken and not row["parked_at"] and job["updated_at"] >= old
            if (row["parked_at"] or _sent_by(row, before)) and not (lately and not _passed(row, reached)):
                rank = (
                    not row["parked_at"],
                    row["rescues"] >= MOST_RESCUES,
                    self._waits(job),
                    job["updated_at"],
                )
                found.append(((*rank, job["id"]), self._stale(job, row)))
        return [each for _, each in sorted(found, key=lambda one: one[0])[:limit]]

    def count_overtaken(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were overtaken by others that moved just now."""
        since = self.now() - OVERTAKEN_AFTER
        found, reached = Counter[str](), self._reached(since)
        for job, row in self._waiting():
            if row and not row["parked_at"] and not self._waits(job) and job["updated_at"] < since:
                found[job["status"]] += _sent_by(row, before) and _passed(row, reached)
        return {stage: number for stage, number in found.items() if number}

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[StaleJob]:
        """Return jobs without an event for 30 minutes, less those that wait for a known reason."""
        found, reached, old = [], self._reached(), self.now() - _STUCK
        for job, row in self._waiting():
            stage, retry_at = job["status"], job["next_retry_at"]
            known = (retry_at and retry_at >= old) or (row and not row["sent_at"] and not row["parked_at"])
            if known or job["updated_at"] >= old or stage not in (*empty, *busy):
                continue
            if stage in empty or row is None or row["parked_at"] or _passed(row, reached):
                found.append(self._stale(job, row))
        return sorted(found, key=lambda each: each.updated_at)[:limit]

    def send_again(self, jobs: Sequence[StaleJob]) -> int:
        """Hand kept messages to the relay, unless something happened to their job meanwhile."""
        done = 0
        for each in jobs:
            job, row = self.jobs.jobs[each.job_id], self.jobs.outbox.get(each.message_id or "")
            if row and job["updated_at"] == each.updated_at and job["status"] in BY_NAME:
                row.update(sent_at=None, parked_at=None, tries=0, claimed_until=self.now())
                row["rescues"] += 1
                job["updated_at"] = self.now()
                done += 1
        return done

    def parked(self) -> int:
        """Return how many messages were set aside that their jobs still wait for."""
        return sum(row is not None and row["parked_at"] is not None for _, row in self._waiting())

    def log_audit(self, write: Callable[[KeptEvent], None], limit: int) -> int:
        """Pass nothing on: the twin's events are looked at where they are."""
        return 0

    def count_old_corpora(self, corpora: int, chunks: int) -> int:
        """Count nothing: the twin has no corpora of an earlier release."""
        return 0

    def index_builds_due(self) -> int:
        """Return how many indexes are due: as many as the test says."""
        return self.index_builds

    def other_models(self, model: str, dimension: int) -> Mapping[str, Mapping[str, int]]:
        """Return documents and corpora of other models: what the test says."""
        return dict(self.models)

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete messages of jobs that ended long ago; the rest has no age here."""
        since, jobs = self.now() - keep.payloads, self.jobs.jobs
        ended = {each for each, job in jobs.items() if job["ended_at"] and job["ended_at"] < since}
        done = [row for row in self.jobs.outbox.values() if row["sent_at"] or row["parked_at"]]
        old = [row["id"] for row in done if row["job_id"] in ended][:limit]
        for message_id in old:
            del self.jobs.outbox[message_id]
        return {"outbox": len(old)}

    def pauses(self) -> Mapping[str, str]:
        """Return why a stage is held back."""
        return dict(self.jobs.pauses)

    def interruptions(self) -> Sequence[tuple[str, str]]:
        """Return kind and subject of pauses and of breakers that were not closed within INTERRUPTED_FOR."""
        kinds = ("paused", "breaker_open")
        still = [(kind, subject) for kind in kinds for subject in self.open_incidents.get(kind, {})]
        since = self.now() - INTERRUPTED_FOR
        return [
            *still,
            *(each for each, at in self.closed_incidents.items() if each[0] in kinds and at > since),
        ]

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` the open incidents of `kind`."""
        before = self.open_incidents.get(kind, {})
        opened = [subject for subject in current if subject not in before]
        closed = [subject for subject in before if subject not in current]
        self.closed_incidents |= dict.fromkeys(((kind, subject) for subject in closed), self.now())
        self.open_incidents[kind] = {**current, **{key: before[key] for key in before if key in current}}
        return opened, closed

    def _waiting(self) -> Iterator[tuple[Row, Row | None]]:
        """Jobs that wait for a stage, with the newest message of that stage and attempt."""
        newest = {_work(row, row["job_id"], row["stage"]): row for row in self.jobs.outbox.values()}
        for job in self.jobs.jobs.values():
            if job["status"] in BY_NAME:
                yield job, newest.get(_work(job, job["id"], job["status"]))

    def _reached(self, since: datetime | None = None) -> dict[tuple[str, str], datetime]:
        """Return, by caller and stage, when the newest processed message was sent.

        With `since` only by jobs that something happened to after that.
        """
        found: dict[tuple[str, str], datetime] = {}
        for row in self.jobs.outbox.values():
            job, key = self.jobs.jobs[row["job_id"]], (row["stage"], row["caller_id"])
            moved = _work(row, row["job_id"], row["stage"]) != _work(job, job["id"], job["status"])
            if row["sent_at"] and moved and (since is None or job["updated_at"] > since):
                found[key] = max(row["sent_at"], found.get(key, row["sent_at"]))
        return found

    def _waits(self, job: Row) -> bool:
        return job["next_retry_at"] is not None and job["next_retry_at"] > self.now()

    def _stale(self, job: Row, row: Row | None) -> StaleJob:
        columns = ("caller_id", "attempt", "url", "updated_at")
        return StaleJob(
            job_id=job["id"],
            stage=job["status"],
            stuck_for=self.now() - job["updated_at"],
            message_id=row["id"] if row else None,
            rescues=row["rescues"] if row else 0,
            parked=bool(row and row["parked_at"]),
            **{name: job[name] for name in columns},
        )


def _work(row: Row, job_id: str, stage: str) -> tuple[str, str, int]:
    return job_id, stage, row["attempt"]


def _sent_by(row: Row, before: datetime) -> bool:
    return row["sent_at"] is not None and row["sent_at"] <= before


def _passed(row: Row, reached: Mapping[tuple[str, str], datetime]) -> bool:
    until = reached.get((row["stage"], row["caller_id"]))
    return until is not None and row["sent_at"] is not None and row["sent_at"] < until - _SLACK
