"""Requests and answers of job actions: cancel, retry, replay, compare, batches."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from indexmill.contracts.cost import Budget, Receipt
from indexmill.contracts.crawl import CrawlKind
from indexmill.contracts.identity import CorpusName, Identifier
from indexmill.contracts.job import ONLY_WHEN_KNOWN
from indexmill.contracts.pipeline import StageName

MAX_RETRIED = 100


def _one_line(text: str) -> str:
    """Return the reason as it is kept: what cannot be printed becomes a space."""
    reason = "".join(char if char.isprintable() else " " for char in text).strip()
    if not reason:
        raise ValueError("A reason says something.")
    return reason


class CancelRequest(BaseModel):
    """Why a job is stopped; it is kept with the job."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_one_line)]


class RetryRequest(BaseModel):
    """Which of the caller's failed jobs to retry, newest first."""

    model_config = ConfigDict(extra="forbid", strict=True)

    corpus_name: CorpusName | None = None
    failed_stage: StageName | None = None
    code: Identifier | None = None
    """`error.code` of the jobs."""
    batch_id: Identifier | None = None
    limit: int = Field(default=MAX_RETRIED, ge=1, le=MAX_RETRIED)
    include_permanent: bool = False
    """Also jobs that another try cannot help; those with a `code` that was asked for always are."""


class SkippedJob(BaseModel):
    """A job that matched and was not retried."""

    job_id: str
    reason: str


class RetryReport(BaseModel):
    """What a bulk retry did."""

    retried: list[str]
    """Job ids."""
    skipped: list[SkippedJob]
    more: bool
    """Whether more jobs match than were looked at."""


class ReplayRequest(BaseModel):
    """How to do a job again: with what the site has now, or with the raw content that was fetched then."""

    model_config = ConfigDict(extra="forbid", strict=True)

    source: Literal["fetch", "stored"] | None = None
    """None: fetch a URL, and read the kept content of a document without one."""
    budget: Budget | None = None
    """Of the new job, as in a submit."""


class Comparison(BaseModel):
    """One part of two jobs' results."""

    part: Literal["content", "text", "chunks", "model"]
    verdict: Literal["same", "changed", "unknown"]
    """`unknown`: one of the jobs did not come that far, or nothing was noted of it."""
    before: dict[str, Any]
    after: dict[str, Any]
    why: str | None = None
    """What explains a change, as far as the notes tell."""


class JobDiff(BaseModel):
    """A job beside the one that it repeats, or beside the one whose version was published before it."""

    job_id: str
    status: str
    replay_of: str | None
    """None for a job that is no replay."""
    compared_with: str
    original_status: str
    same: bool | None
    """Whether both made the same; null while that cannot be said."""
    parts: list[Comparison]
    text_diff: str | None = None
    """Unified diff of the text, cut at 16,000 characters; null when the text is the same, is not kept
    any more (`PayloadRetentionDays`), or has more than 56 kB or 2,000 lines."""


class CrawlState(BaseModel):
    """Progress of a crawl."""

    kind: CrawlKind
    pages: int
    """Jobs so far."""
    max_pages: int
    canceled: bool
    """Whether it was stopped: it gets no more pages."""


class BatchSummary(BaseModel):
    """How the jobs of one batch stand."""

    batch_id: str
    total: int
    done: int
    failed: int
    finished: bool
    """Whether all of them are done or failed."""
    by_status: dict[str, int]
    """All six statuses."""
    failed_codes: dict[str, int]
    """`error.code` of the failed ones."""
    duplicates: int = 0
    """How many of those that are done have `duplicate_of`."""
    crawl: CrawlState | None = Field(**ONLY_WHEN_KNOWN)
    """Of a crawl, while it is kept: its pages are the batch's jobs. While not `finished` it may get more."""
    receipt: Receipt | None = Field(**ONLY_WHEN_KNOWN)
    """Of all jobs of the batch, when it was asked for."""
