"""History of a job as its caller sees it."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel

from indexmill.contracts.job import JobError, JobStatus


class HistoryEntry(BaseModel):
    """One transition. Rows are added and never changed; each seals the one before it."""

    attempt: int
    from_status: JobStatus | None = None
    to_status: JobStatus
    at: datetime
    cause: str | None = None
    """What brought it about, for example `scraping success`."""
    error: JobError | None = None
    tries: int | None = None
    """How often the stage was tried."""
    worker: str | None = None
    """Who reported."""
    elapsed_ms: int | None = None
    """What the stage took by its worker's clock."""
    waited_ms: int | None = None
    """Since the transition before, queues included."""
    job_type: str | None = None
    payload_digest: str | None = None
    request_id: str | None = None
    """X-Request-Id of the request that it goes back to; not part of the hash."""
    prev_hash: str
    """Empty in the first entry."""
    hash: str
    """sha256 over `prev_hash` and everything in this entry, as `job_history_hash` in sql/ says."""


class JobHistory(BaseModel):
    """Every transition of one job, oldest first."""

    job_id: str
    entries: list[HistoryEntry]
    intact: bool
    """Whether every hash is right, every entry follows the last, and the newest is the job's status."""
