"""The job as callers see it: one object for GET, list and events."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.content import Unchanged
from indexmill.contracts.cost import Budget, Receipt
from indexmill.contracts.pipeline import STAGES


class JobStatus(StrEnum):
    """The six states of a job. Only `done` and `failed` are terminal."""

    _ignore_ = "stage"
    PENDING = "pending"
    for stage in STAGES:
        vars()[stage.name.upper()] = stage.name
    DONE = "done"
    FAILED = "failed"

    @property
    def terminal(self) -> bool:
        """Return whether the job has ended: without a retry its status does not change again."""
        return self in (JobStatus.DONE, JobStatus.FAILED)


class JobError(BaseModel):
    """Why a job failed. Later fields may be added; these four are always there."""

    model_config = ConfigDict(extra="allow")

    stage: str
    code: str
    message: str
    at: datetime
    cause: str | None = None
    """The precise code behind `max_retries_exceeded` or `poison_message`."""
    attempts: int | None = None
    """How often the stage was tried."""


class LastError(BaseModel):
    """Failure of the last try of a job's stage; another one follows."""

    code: str
    message: str
    at: datetime


ONLY_WHEN_KNOWN: Final[dict[str, Any]] = {"default": None, "exclude_if": lambda value: value is None}


class Progress(BaseModel):
    """Where a job stands: stage `stage` of `of`; 0 while it waits.

    The rest is there while a long document is embedded: a hint for people, which may be late or missing.
    """

    stage: int
    of: int
    chunks_total: int | None = Field(**ONLY_WHEN_KNOWN)
    chunks_done: int | None = Field(**ONLY_WHEN_KNOWN)
    bytes: int | None = Field(**ONLY_WHEN_KNOWN)
    """Of the text that is done."""


WaitReason = Literal[
    "quota_active",
    "quota_hourly",
    "quota_chunks",
    "dependency",
    "domain",
    "domain_failing",
    "paused",
    "capacity",
    "breaker_open",
]


class Waiting(BaseModel):
    """Reason for which a pending job waits, or for which a job in flight makes no progress."""

    reason: WaitReason
    """Which quota is used up, or: other jobs, the pace of the job's site, a site that failed several times
    and is left alone for a while, an operator who holds work back, a free place, an outage."""
    position: int | None = None
    """Its turn among the caller's pending jobs; 1 is next. Null while it waits for other jobs or its site."""
    next_eligible_at: datetime | None = None
    """Estimate of when it starts, or its site is asked again; null when there is none."""
    blocked_by: list[str] | None = None
    """The jobs that have to be done first."""


PageChange = Literal["new", "same", "changed", "removed"]
"""Of a page, by its text, compared with the version that was published when its job was submitted."""


class DuplicateOf(BaseModel):
    """The document that search has in place of a duplicate of it."""

    document_id: str
    url: str


class Job(BaseModel):
    """One document on its way into a corpus."""

    job_id: str
    status: JobStatus
    url: str
    """As it was submitted; `upload:` and the encoded name for a document without one."""
    corpus_name: str | None
    failed_stage: str | None = None
    error: JobError | None = None
    created_at: datetime
    updated_at: datetime
    user_message: str
    """A sentence that can be shown to a person as it is."""
    progress: Progress
    attempt: int
    batch_id: str | None = None
    document_id: str | None = None
    chunk_count: int | None = None
    title: str | None = None
    attempts: int | None = None
    """Tries of the stage that is waiting, or that failed; null while there is nothing to say."""
    next_retry_at: datetime | None = None
    """When a stage that waits is tried again."""
    last_error: LastError | None = None
    """Why the last try failed, while another one follows; null while nothing is wrong, and after the end."""
    priority: int = 50
    """0 to 100; higher starts earlier."""
    job_type: str = "index"
    kind: Literal["crawl", "sitemap", "page"] | None = Field(**ONLY_WHEN_KNOWN)
    """What it is in a crawl, which is its batch: the first page, the sitemap, or a page that was found."""
    replay_of: str | None = None
    """The job that this one repeats."""
    retryable: bool = False
    """Whether it failed for a reason that another try can help."""
    waiting: Waiting | None = None
    """Of a pending job, and of one in flight that is held back."""
    request_id: str | None = None
    """X-Request-Id of the request behind its current run: a submit, replay, retry or cancel."""
    budget: Budget | None = Field(**ONLY_WHEN_KNOWN)
    """Its bounds, when there are any."""
    expected_by: datetime | None = None
    """By when the job will most likely have ended, as promised when it was submitted; later is no failure. It
    moves with the next try of a job that waits for one, and is null when it can no longer be estimated."""
    change: PageChange | None = Field(**ONLY_WHEN_KNOWN)
    """What the fetch found; `removed`: the site answered 404 or 410, and the job failed."""
    unchanged: Literal[True] | None = Field(**ONLY_WHEN_KNOWN)
    """Nothing was chunked or embedded: the published version is that of this content."""
    unchanged_because: Unchanged | None = Field(**ONLY_WHEN_KNOWN)
    """The site answered 304, it sent the same content, or it was not asked again within `max_age`."""
    notes: list[str] | None = Field(**ONLY_WHEN_KNOWN)
    """Sentences about what of its document could not be read, as chapters without text."""
    duplicate_of: DuplicateOf | None = Field(**ONLY_WHEN_KNOWN)
    """Nothing of it is published: the page names this document, which is published with the same text."""
    receipt: Receipt | None = Field(**ONLY_WHEN_KNOWN)
    """What it used so far, when that was asked for."""
