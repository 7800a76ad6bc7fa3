"""Reads of jobs, as their callers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from indexmill.contracts.cost import Spent
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.http_actions import HistoryEntry, JobHistory
from indexmill.contracts.job import Job, JobError, JobStatus, LastError, Waiting
from indexmill.orchestrator.store.rows import Row
from indexmill.orchestrator.store.texts import progress, retryable, user_message
from indexmill.platform.postgres.database import Statements

_SITE_WAITS: Final[Mapping[str, Literal["domain", "domain_failing"]]] = {
    ErrorCode.DOMAIN_BUSY: "domain",
    ErrorCode.DOMAIN_FAILING: "domain_failing",
}
_WANTED: Final = (
    *("caller_id", "job_id", "corpus_name", "status", "failed_stage", "url", "code", "batch_id"),
    *("created_after", "created_before"),
)


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Number of a batch's jobs with one status and error code."""

    status: JobStatus
    code: str | None
    count: int
    crawls: bool = False
    """Whether the batch is a crawl."""
    duplicates: int = 0
    """How many of them are done as duplicates."""


@dataclass(frozen=True, slots=True)
class StatusCount:
    """Number of a caller's jobs with one status and failed stage."""

    status: JobStatus
    failed_stage: str | None
    count: int


@dataclass(frozen=True, slots=True)
class Hold:
    """A pause of a stage, or an open breaker."""

    reason: Literal["paused", "breaker_open"]
    subject: str
    """A stage, or `*` for all; of a breaker its name."""


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter for a list of a caller's jobs, newest first."""

    caller_id: str
    corpus_name: str | None = None
    status: str | None = None
    failed_stage: str | None = None
    url: str | None = None
    code: str | None = None
    """Of its error."""
    batch_id: str | None = None
    job_id: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    limit: int = 50
    before: tuple[datetime, str] | None = None
    """Keyset: only jobs older than this (created_at, job_id)."""


@dataclass(frozen=True, slots=True)
class StageTotals:
    """Sums over the transitions that one stage of some jobs caused."""

    stage: str | None
    """None: over all stages."""
    jobs: int
    unknown_jobs: int
    """Those that were not metered, or only in part."""
    tries: int | None
    wall_ms: int | None
    spent: Spent


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
class JobSnapshot:
    """A job and what happened to it since some event, seen at one moment."""

    job: Job
    newest: int
    """`seq` of its last event."""
    events: Sequence[JobEvent]
    """Oldest first; the last one led to `job` as it is."""


class Queries:
    """Reads of jobs; None for a job that is unknown or another caller's."""

    _sql: Statements

    def job(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job; None when it is unknown or another caller's. So do the reads below."""
        row = self._sql.one("job", caller_id=caller_id, job_id=job_id)
        return as_job(row) if row else None

    def job_events(self, caller_id: str, job_id: str, seq: int) -> JobSnapshot | None:
        """Return the caller's job with its events after `seq`, read by one statement."""
        row = self._sql.one("job_events", caller_id=caller_id, job_id=job_id, seq=seq)
        if row is None:
            return None
        return JobSnapshot(as_job(row), row["newest"], [as_event(event) for event in row["events"]])

    def find_jobs(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        at, job_id = wanted.before or (None, None)
        page = {"before_at": at, "before_id": job_id, "limit": wanted.limit}
        return [as_job(row) for row in self._sql.all("find_jobs", **_wanted(wanted), **page)]

    def receipt(self, wanted: JobFilter, most: int) -> list[StageTotals]:
        """Return sums by stage over at most `most` of the jobs that match; the sum of all stages has none."""
        return [_totals(row) for row in self._sql.all("receipt", **_wanted(wanted), most=most)]

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the transitions of the caller's job; the chain is checked where it is kept."""
        return _history(job_id, self._sql.all("history", caller_id=caller_id, job_id=job_id))

    def count_batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Count the batch's jobs by status and error code; empty for an unknown batch."""
        found = self._sql.all("count_batch", caller_id=caller_id, batch_id=batch_id)
        columns = ("code", "count", "crawls", "duplicates")
        return [BatchLine(JobStatus(row["status"]), *(row[name] for name in columns)) for row in found]

    def count_jobs(self, caller_id: str, most: int) -> list[StatusCount]:
        """Count the caller's jobs by status and failed stage, up to `most` of each status."""
        statuses = [status.value for status in JobStatus]
        found = self._sql.all("count_jobs", caller_id=caller_id, statuses=statuses, most=most)
        return [StatusCount(JobStatus(row["status"]), row["failed_stage"], row["count"]) for row in found]

    def holds(self) -> list[Hold]:
        """Return pauses of stages, and breakers that were not closed at the last sweep."""
        return [Hold(row["reason"], row["subject"]) for row in self._sql.all("holds")]

    def other_model(self) -> bool:
        """Return whether documents had vectors of another model when the sweeper looked last."""
        return bool(self._sql.all("other_model"))


def _wanted(wanted: JobFilter) -> dict[str, Any]:
    return {name: getattr(wanted, name) for name in _WANTED}


def as_job(row: Row) -> Job:
    """Return the job as its caller sees it, without what it waits for.

    A column that is named as its field is that field.
    """
    status, error = JobStatus(row["status"]), error_of(row)
    stored = {name: row[name] for name in Job.model_fields.keys() & row.keys()}
    return Job.model_validate(
        stored
        | {
            "job_id": row["id"],
            "status": status,
            "error": error,
            "user_message": user_message(
                status, error, row["kind"], row["job_type"], duplicate=row["duplicate_of"] is not None
            ),
            "progress": progress(status, row["failed_stage"]),
            "attempts": row["tries"] or (error.attempts if error else None),
            "last_error": _last_error(row),
            "waiting": _site_wait(row),
            "retryable": retryable(status, error),
            "change": row["page_change"],
            "unchanged": True if row["unchanged"] else None,
            "unchanged_because": row["unchanged"],
            "duplicate_of": row["duplicate_of"] if status is JobStatus.DONE else None,
        }
    )


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


def _history(job_id: str, rows: list[dict[str, Any]]) -> JobHistory | None:
    """Return the whole history, with whether its hash chain is intact; None without rows."""
    if not rows:
        return None
    return JobHistory(
        job_id=job_id,
        entries=[HistoryEntry.model_validate(row) for row in rows],
        intact=all(row["sound"] for row in rows) and rows[-1]["to_status"] == rows[-1]["status"],
    )


def _totals(row: Row) -> StageTotals:
    """Return the sums of one stage, or of all."""
    spent = Spent(**{name: row[name] or 0 for name in Spent.model_fields})
    columns = ("stage", "jobs", "unknown_jobs", "tries", "wall_ms")
    return StageTotals(**{name: row[name] for name in columns}, spent=spent)


def _last_error(row: Row) -> LastError | None:
    """Return why the last try failed; what the release before left of an earlier stage does not count."""
    found = row["last_error"]
    current = found and row["retry_cause"] is not None and found["stage"] == row["status"]
    return LastError.model_validate(found) if current else None


def _site_wait(row: Row) -> Waiting | None:
    """Return why a job in flight waits for its site; None when it does not."""
    reason = _SITE_WAITS.get(row["retry_cause"])
    return Waiting(reason=reason, next_eligible_at=row["next_retry_at"]) if reason else None


def error_of(row: Row) -> JobError | None:
    """Return why the job failed."""
    return JobError.model_validate(row["error"]) if row["error"] else None
