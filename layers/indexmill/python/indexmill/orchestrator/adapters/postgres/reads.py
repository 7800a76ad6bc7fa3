"""Reads of the job store on Postgres, by named statements."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from psycopg.rows import dict_row

from indexmill.contracts.cost import Budget, Spent
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.http_history import HistoryEntry, JobHistory
from indexmill.contracts.job import Job, JobError, JobStatus, LastError, Waiting
from indexmill.contracts.messages import ChunkTask, Stored, Target, read_kept, write
from indexmill.orchestrator.actions.ports import LockedJob, Original
from indexmill.orchestrator.admission.admit import REMEMBERED, GlobalUsage, Limits, Pace, Usage
from indexmill.orchestrator.admission.forecast import LAST
from indexmill.orchestrator.jobs.rows import CLAIM_S, PARK_AFTER, JobState, OutboxRow, Previous
from indexmill.orchestrator.jobs.texts import progress, retryable, user_message
from indexmill.orchestrator.queries.ports import (
    BatchLine,
    Hold,
    JobEvent,
    JobFilter,
    JobSnapshot,
    StageTotals,
    StatusCount,
)
from indexmill.orchestrator.submission.ports import InFlight
from indexmill.orchestrator.sweeper.ports import MOST_RESCUES
from indexmill.platform.postgres.database import Connection
from indexmill.platform.postgres.statements import load
from indexmill.platform.pressure import Load
from indexmill.platform.quotas import Quota

SQL: Final = load(
    Path(__file__).parent, {"claim_s": CLAIM_S, "park_after": PARK_AFTER, "most_rescues": MOST_RESCUES}
)
"""Every statement of this folder, by name."""
_PACE_KNOWN_S: Final = 1.0

Row = Mapping[str, Any]
"""By column name."""


@dataclass(slots=True)
class PaceCache:
    """Reads that count for a moment; times are of the monotonic clock."""

    pace: Pace = field(default_factory=Pace)
    until_s: float = 0.0
    no_site_due_until_s: float = 0.0


class PostgresReads:
    """Reads on one connection, inside its transaction when there is one."""

    def __init__(self, connection: Connection, limits: Limits, paces: PaceCache) -> None:
        """`paces` outlives the transaction."""
        self._connection, self._limits, self._paces = connection, limits, paces

    @property
    def limits(self) -> Limits:
        """The configured quotas and bounds."""
        return self._limits

    def job(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job."""
        row = self._one("job", caller_id=caller_id, job_id=job_id)
        return as_job(row) if row else None

    def job_events(self, caller_id: str, job_id: str, seq: int) -> JobSnapshot | None:
        """Return the caller's job with its events after `seq`, read by one statement."""
        row = self._one("job_events", caller_id=caller_id, job_id=job_id, seq=seq)
        if row is None:
            return None
        return JobSnapshot(as_job(row), row["newest"], [as_event(event) for event in row["events"]])

    def find_jobs(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        at, job_id = wanted.before or (None, None)
        page = {"before_at": at, "before_id": job_id, "limit": wanted.limit}
        return [as_job(row) for row in self._all("find_jobs", **_wanted(wanted), **page)]

    def receipt(self, wanted: JobFilter, most: int) -> list[StageTotals]:
        """Return sums by stage over at most `most` of the jobs that match; the sum of all stages has none."""
        return [as_totals(row) for row in self._all("receipt", **_wanted(wanted), most=most)]

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the caller's job with what a replay needs."""
        row = self._one("original", caller_id=caller_id, job_id=job_id)
        return as_original(row) if row else None

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the transitions of the caller's job; the chain is checked where it is kept."""
        return as_history(job_id, self._all("history", caller_id=caller_id, job_id=job_id))

    def count_batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Count the batch's jobs by status and error code."""
        found = self._all("count_batch", caller_id=caller_id, batch_id=batch_id)
        columns = ("code", "count", "crawls", "duplicates")
        return [BatchLine(JobStatus(row["status"]), *(row[name] for name in columns)) for row in found]

    def count_jobs(self, caller_id: str, most: int) -> list[StatusCount]:
        """Count the caller's jobs by status and failed stage, up to `most` of each status."""
        statuses = [status.value for status in JobStatus]
        found = self._all("count_jobs", caller_id=caller_id, statuses=statuses, most=most)
        return [StatusCount(JobStatus(row["status"]), row["failed_stage"], row["count"]) for row in found]

    def holds(self) -> list[Hold]:
        """Return pauses of stages, and breakers that were not closed at the last sweep."""
        return [Hold(row["reason"], row["subject"]) for row in self._all("holds")]

    def jobs_in_flight(self, document_ids: Sequence[str], job_ids: Sequence[str] = ()) -> list[InFlight]:
        """Return the unforced jobs in flight for the documents, and the jobs `job_ids`."""
        found = self._all("jobs_in_flight", documents=list(document_ids), job_ids=list(job_ids))
        return [as_in_flight(row) for row in found]

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it, without a lock."""
        row = self._one("state", job_id=job_id)
        return as_state(row) if row else None

    def usage(self, caller_id: str, tier: str) -> tuple[Usage, GlobalUsage, int]:
        """Return the usage of the caller and of all callers, and its pending jobs; counted to the limits."""
        quota = self._limits.of(tier)
        row = self._one(
            "usage",
            caller_id=caller_id,
            tier=tier,
            max_active=quota.max_active,
            remembered=remembered(quota),
            window=self._limits.window,
            most=self._limits.max_pending + 1,
        )
        if row is None:
            raise LookupError(tier)
        return *as_usage(row), row["pending"]

    def load(self, most: int) -> Load:
        """Return jobs that are pending or in flight, and how long the oldest one waits for capacity."""
        row = self._one("load", most=most)
        return Load(row["depth"], row["age_s"] or 0.0) if row else Load(0)

    def pace(self) -> Pace:
        """Return how fast jobs went lately, read at most once a second."""
        now_s = time.monotonic()
        if now_s >= self._paces.until_s:
            row = self._one("pace", last=LAST)
            self._paces.pace = Pace(**row) if row else Pace()
            self._paces.until_s = now_s + _PACE_KNOWN_S
        return self._paces.pace

    def positions(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return position and tier of those of the jobs that are in the caller's queue."""
        # Many positions are one walk along the queue, one is a count.
        name = "positions" if len(job_ids) > 1 else "position"
        found = self._all(name, caller_id=caller_id, job_ids=list(job_ids))
        return {row["id"]: (row["position"], row["tier"]) for row in found}

    def blockers(self, job_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by job, the dependencies that are not done."""
        return {row["job_id"]: row["blocked_by"] for row in self._all("blockers", job_ids=list(job_ids))}

    def waiting_callers(self) -> list[str]:
        """Return the callers with a pending job that no dependency blocks."""
        return [row["caller_id"] for row in self._all("waiting_callers")]

    def kept_payloads(self, job_id: str) -> dict[str, str]:
        """Return the newest payload of each stage."""
        return {row["stage"]: row["payload"] for row in self._all("kept_payloads", job_id=job_id)}

    def has_message(self, job_id: str, message_id: str) -> bool:
        """Return whether the job has that message."""
        return self._found("has_message", job_id=job_id, message_id=message_id)

    def published_since(self, document_id: str, at: datetime) -> bool:
        """Return whether the document is published and was written to after `at`."""
        return self._found("published_since", document_id=document_id, at=at)

    def messages(self, name: str, **values: Any) -> list[OutboxRow]:
        """Return the messages that the named statement claims."""
        return [as_message(row) for row in self._all(name, **values)]

    def _all(self, name: str, **values: Any) -> list[dict[str, Any]]:
        return self._connection.cursor(row_factory=dict_row).execute(SQL[name], values).fetchall()

    def _one(self, name: str, **values: Any) -> dict[str, Any] | None:
        return self._connection.cursor(row_factory=dict_row).execute(SQL[name], values).fetchone()

    def _do(self, name: str, **values: Any) -> None:
        self._connection.execute(SQL[name], values)

    def _found(self, name: str, **values: Any) -> bool:
        row = self._one(name, **values)
        return bool(row and row["found"])


_SITE_WAITS: Final[Mapping[str, Literal["domain", "domain_failing"]]] = {
    ErrorCode.DOMAIN_BUSY: "domain",
    ErrorCode.DOMAIN_FAILING: "domain_failing",
}
_WANTED: Final = (
    *("caller_id", "job_id", "corpus_name", "status", "failed_stage", "url", "code", "batch_id"),
    *("created_after", "created_before"),
)


def _wanted(wanted: JobFilter) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in _WANTED}


def remembered(quota: Quota) -> int:
    """Return how many starts of the last hour are counted."""
    return max(REMEMBERED, quota.max_per_hour or 0, quota.burst or 0)


def as_job(row: Row) -> Job:
    """Return the job as its caller sees it, without what it waits for."""
    status, error = JobStatus(row["status"]), _error(row)
    return Job(
        job_id=row["id"],
        status=status,
        url=row["url"],
        corpus_name=row["corpus_name"],
        failed_stage=row["failed_stage"],
        error=error,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        user_message=user_message(status, error, row["kind"], duplicate=row["duplicate_of"] is not None),
        progress=progress(status, row["failed_stage"]),
        attempt=row["attempt"],
        batch_id=row["batch_id"],
        document_id=row["document_id"],
        chunk_count=row["chunk_count"],
        title=row["title"],
        attempts=row["tries"] or (error.attempts if error else None),
        next_retry_at=row["next_retry_at"],
        priority=row["priority"],
        job_type=row["job_type"],
        kind=row["kind"],
        replay_of=row["replay_of"],
        expected_by=row["expected_by"],
        last_error=_last_error(row),
        waiting=_site_wait(row),
        request_id=row["request_id"],
        retryable=retryable(status, error),
        budget=_budget(row),
        change=row["page_change"],
        unchanged=True if row["unchanged"] else None,
        unchanged_because=row["unchanged"],
        notes=row["notes"],
        duplicate_of=row["duplicate_of"] if status is JobStatus.DONE else None,
    )


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
        mark_stale=row["mark_stale"],
        accept=row["accept"],
        kind=row["kind"],
        crawl_id=row["batch_id"] if row["kind"] else None,
        previous=Previous(**row["previous"]) if row["previous"] else None,
        issued=row["generation"],
        has_dependents=row["has_dependents"],
        budget=_budget(row),
        has_duplicates=row.get("has_duplicates", False),
    )


def as_locked_job(row: Row) -> LockedJob:
    """Return the job as job actions see it."""
    columns = ("failed_stage", "resume_stage", "forced", "ended_at", "replay_of")
    named = {name: row[name] for name in columns}
    return LockedJob(as_state(row), _error(row), **named, stored=_stored(row))


def as_in_flight(row: Row) -> InFlight:
    """Return the job as a submit of the same document sees it."""
    stored = _stored(row)
    return InFlight(
        row["document_id"],
        row["id"],
        JobStatus(row["status"]),
        row["expected_by"],
        row["caller_id"],
        stored.ref.sha256 if stored else None,
        row["accept"],
    )


def as_original(row: Row) -> Original:
    """Return the job as a replay sees it."""
    return Original(
        as_job(row),
        as_target(row),
        _stored(row),
        row["determinism"] or {},
        previous_job_id=row["previous"]["job_id"] if row["previous"] else None,
        payload_digest=row["payload_digest"],
        accept=row["accept"],
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


def as_message(row: Row) -> OutboxRow:
    """Return the message; a row whose kind is `call`, of the release before, becomes a ChunkTask."""
    columns = {name: value for name, value in row.items() if name != "kind"}
    if row["kind"] == "call":
        ids = {"message_id": row["id"], "job_id": row["job_id"], "attempt": row["attempt"]}
        columns["payload"] = write(read_kept(ChunkTask, row["payload"], **ids))
    return OutboxRow(**columns)


def as_event(row: Row) -> JobEvent:
    """Return one transition; `detail` is the error of a failure."""
    failed = row["detail"] and row["to_status"] == JobStatus.FAILED
    return JobEvent(
        row["seq"],
        row["attempt"],
        row["to_status"],
        datetime.fromisoformat(row["at"]),
        JobError.model_validate(row["detail"]) if failed else None,
    )


def as_history(job_id: str, rows: list[dict[str, Any]]) -> JobHistory | None:
    """Return the whole history, with whether its hash chain is intact; None without rows."""
    if not rows:
        return None
    return JobHistory(
        job_id=job_id,
        entries=[HistoryEntry.model_validate(row) for row in rows],
        intact=all(row["sound"] for row in rows) and rows[-1]["to_status"] == rows[-1]["status"],
    )


def as_totals(row: Row) -> StageTotals:
    """Return the sums of one stage, or of all."""
    spent = Spent(**{name: row[name] or 0 for name in Spent.model_fields})
    columns = ("stage", "jobs", "unknown_jobs", "tries", "wall_ms")
    return StageTotals(**{name: row[name] for name in columns}, spent=spent)


def as_usage(row: Row) -> tuple[Usage, GlobalUsage]:
    """Return the caller's usage and that of all callers."""
    columns = ("caller_id", "tier", "active", "in_hour", "in_minute", "hour_since", "minute_since", "newest")
    return (
        Usage(**{name: row[name] for name in columns}, chunks_today=row["chunks_today"]),
        GlobalUsage(row["now"].astimezone(UTC), row["all_active"], row["all_callers"], row["paused"]),
    )


def _budget(row: Row) -> Budget | None:
    return Budget.model_validate(row["budget"]) if row["budget"] else None


def _stored(row: Row) -> Stored | None:
    return Stored.model_validate(row["raw_ref"]) if row["raw_ref"] else None


def _error(row: Row) -> JobError | None:
    return JobError.model_validate(row["error"]) if row["error"] else None


def _last_error(row: Row) -> LastError | None:
    """Return why the last try failed; what the release before left of an earlier stage does not count."""
    found = row["last_error"]
    current = found and row["retry_cause"] is not None and found["stage"] == row["status"]
    return LastError.model_validate(found) if current else None


def _site_wait(row: Row) -> Waiting | None:
    """Return why a job in flight waits for its site; None when it does not."""
    reason = _SITE_WAITS.get(row["retry_cause"])
    return Waiting(reason=reason, next_eligible_at=row["next_retry_at"]) if reason else None
