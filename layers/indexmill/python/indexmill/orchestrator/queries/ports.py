"""Rows and ports of reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from indexmill.contracts.cost import Spent
from indexmill.contracts.http_history import JobHistory
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.orchestrator.jobs.rows import JobState


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
    """Something that keeps a stage from working."""

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


class Windows(Protocol):
    """Counts the streams that wait for something to happen, in all processes together."""

    def enter(self, seconds: float) -> str | None:
        """Take a place for at most `seconds`; None when all are taken, or the count cannot be read."""
        ...

    def leave(self, place: str) -> None:
        """Give the place back. Never raises: a place that is not given back is free after its seconds."""
        ...


class QueriesTx(Protocol):
    """Reads of jobs; None for a job that is unknown or another caller's."""

    def job(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job; None when it is unknown or another caller's. So do the reads below."""
        ...

    def job_events(self, caller_id: str, job_id: str, seq: int) -> JobSnapshot | None:
        """Return the caller's job with its events after `seq`."""
        ...

    def find_jobs(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        ...

    def receipt(self, wanted: JobFilter, most: int) -> list[StageTotals]:
        """Return sums over `most` of the jobs that match, by stage; the sum of all stages has none."""
        ...

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the transitions of the caller's job."""
        ...

    def count_batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Count the batch's jobs by status and error code; empty for an unknown batch."""
        ...

    def count_jobs(self, caller_id: str, most: int) -> list[StatusCount]:
        """Count the caller's jobs by status and failed stage, up to `most` of each status."""
        ...

    def holds(self) -> list[Hold]:
        """Return pauses of stages, and breakers that were not closed at the last sweep."""
        ...

    def other_model(self) -> bool:
        """Return whether documents had vectors of another model when the sweeper looked last."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it, without a lock."""
        ...
