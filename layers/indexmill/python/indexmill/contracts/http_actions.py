"""Requests and answers beside the job: its actions, history and dry run; batches; limits of a caller."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, RootModel

from indexmill.contracts.cost import Budget, Receipt
from indexmill.contracts.crawl import CrawlKind
from indexmill.contracts.http_deletion import DeletionPreview
from indexmill.contracts.identity import CorpusName, Identifier
from indexmill.contracts.job import ONLY_WHEN_KNOWN, JobError, JobStatus
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


class RequestWindow(BaseModel):
    """Limit of the caller's requests to one service; null numbers: there is none, or its use is unknown."""

    service: str
    bucket: str
    """`read` for GET and HEAD, `work` for all others."""
    limit: int | None
    """Requests within the window, burst included."""
    window_seconds: int | None
    used: int | None
    remaining: int | None
    reset_s: int | None
    """Seconds until one more request is possible than now; 0 when none was made."""
    reason: str | None
    """`tier`, `claims`, `fair_share` or `internal`."""


class JobQuota(BaseModel):
    """One quota of jobs: beyond it jobs wait."""

    name: str
    """`active`, `hour`, `minute` or `chunks_today`."""
    limit: int | None
    used: int
    """Counted up to the limit; without one, of the last hour up to 15."""
    reset_at: datetime | None
    """Time at which the use becomes less by itself; null when nothing is used, or when a job has to end."""


class CallerLimits(BaseModel):
    """Limits of one caller and their use."""

    caller_id: str
    """Id that others know the caller by, for example to share a corpus with it."""
    tier: str
    """Tier of its jobs."""
    granted_scopes: list[str] | None = None
    """What the key may do; null when it is not restricted."""
    requests: list[RequestWindow]
    jobs: list[JobQuota]
    pending: int
    max_pending: int
    """More pending jobs are refused."""
    corpus_chunks: int | None
    """Chunks of one corpus, beyond which no document is added to it; null for no limit."""


class DryRunError(BaseModel):
    """Error that a page's job would fail with."""

    code: str
    message: str
    """With the rule, where robots.txt or the page itself refuses."""


class DryRunPage(BaseModel):
    """One URL, fetched once."""

    url: str
    allowed: bool | None
    """Whether robots.txt and the page's own rules let it be indexed."""
    error: DryRunError | None
    """What its job would fail with; null when it would not."""
    final_url: str | None
    """Where redirects ended."""
    content_type: str | None
    title: str | None
    size: int | None
    """Bytes of the content."""
    chunks: int | None
    """Estimate."""
    usd: float | None
    """Estimate of what its job costs when all of it is new."""


class DryRun(BaseModel):
    """Outcome that a submit would have. No job was made."""

    pages: list[DryRunPage]
    jobs: int
    """Jobs that it would make, at most: of a crawl and a sitemap `max_pages`."""
    chunks: int
    """Estimate over the pages that were looked at."""
    usd: float
    """Estimate over them; of a crawl and a sitemap as if each of `jobs` were like the first page."""
    pending: int
    """Jobs of the caller that are pending now."""
    max_pending: int
    """How many may be."""


class Tried(RootModel[DryRun | DeletionPreview]):
    """Answer of a dry run: of a submit, or of a deletion."""
