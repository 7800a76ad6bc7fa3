"""Requests and answers of the Orchestrator's HTTP endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from indexmill.contracts.job import ONLY_WHEN_KNOWN, Job
from indexmill.contracts.pipeline import StageName
from indexmill.contracts.receipt import Receipt

MAX_URLS = 100
MAX_DEPENDENCIES = 20
_URL_LENGTH = 2048


class SubmitRequest(BaseModel):
    """Exactly one of `url` and `urls`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: str | None = Field(default=None, min_length=1, max_length=_URL_LENGTH)
    urls: list[str] | None = Field(default=None, min_length=1, max_length=MAX_URLS)
    corpus_name: str | None = None
    """None means the corpus "default"."""
    job_type: Literal["index"] = "index"
    priority: int = Field(default=50, ge=0, le=100)
    """Higher starts earlier among the caller's own jobs."""
    depends_on: list[str] = Field(default_factory=list, max_length=MAX_DEPENDENCIES)
    """The caller's own jobs that must be done before these start; they fail when one of them fails."""
    force: bool = False
    """Start new jobs even when other jobs of the same documents are in flight."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.url is None) == (self.urls is None):
            raise ValueError("send exactly one of url and urls")
        return self


class SubmitResponse(BaseModel):
    """What was accepted."""

    job_id: str
    """The only job, or the first of `job_ids`."""
    status: Literal["pending"] = "pending"
    url_count: int
    job_ids: list[str] | None = None
    """Beside `urls`, in order; null for a single `url`."""
    batch_id: str | None = None
    deduplicated: bool = False
    """Whether a job in flight was returned for one of the URLs instead of a new one."""
    deduplicated_job_ids: list[str] | None = None
    """Which of `job_ids` those are; they keep the batch, the priority and the dependencies they had."""
    expected_by: datetime | None = None
    """By when all will most likely have ended; a poller that gives up earlier has seen no failure."""


class JobList(BaseModel):
    """One page of the caller's jobs, newest first."""

    jobs: list[Job]
    count: int
    """Jobs on this page."""
    next_cursor: str | None
    """Send it as `cursor` for the next page; null on the last."""
    receipt: Receipt | None = Field(**ONLY_WHEN_KNOWN)
    """Of all jobs that match, on whichever page, when it was asked for."""


class StreamToken(BaseModel):
    """Reads one job's stream without a key; for browsers."""

    token: str
    expires_at: datetime
    url: str
    """For `new EventSource(url)`; the token is in it."""


class StageCompletePayload(BaseModel):
    """A stage's report over HTTP, from an internal caller."""

    model_config = ConfigDict(extra="forbid", strict=True)

    stage: StageName
    status: Literal["success", "failed"]
    result: dict[str, Any] | None = None
    """Scraping: {text, title?, content_type?, final_url?}; chunking: {chunks}; embedding: {chunk_count}."""
    error_code: str | None = Field(default=None, max_length=100)
    error_message: str | None = Field(default=None, max_length=2000)
    attempt: int | None = Field(default=None, ge=1)
    """None means the job's current attempt."""
    message_id: str | None = Field(default=None, min_length=1, max_length=100)
    """Id of the result: the same id is applied once."""


class StageCompleteResponse(BaseModel):
    """`already_advanced`, `job_failed`, or the job's new status."""

    status: str
