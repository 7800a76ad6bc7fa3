"""The job as callers see it, one object for GET, list and events; requests and answers about jobs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from indexmill.contracts.content import MAX_INTEGER, Chunk, Content, Count, Metadata, Unchanged
from indexmill.contracts.cost import Budget, JobChunks, Receipt
from indexmill.contracts.crawl import CrawlRequest, CrawlRules
from indexmill.contracts.errors import is_code
from indexmill.contracts.http_deletion import Deletion
from indexmill.contracts.identity import (
    CALLER_ID,
    Accept,
    CorpusName,
    DocumentText,
    Identifier,
    Title,
    Url,
    WaitReason,
)
from indexmill.contracts.pipeline import STAGES, StageName


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
    metadata: dict[str, str] | None = Field(**ONLY_WHEN_KNOWN)
    """As it was submitted."""
    searchable_at: datetime | None = Field(**ONLY_WHEN_KNOWN)
    """Since when search sees its document's version."""
    generation: int | None = Field(**ONLY_WHEN_KNOWN)
    """Of that version: later versions of a document have higher numbers."""
    chunks: JobChunks | None = Field(**ONLY_WHEN_KNOWN)
    receipt: Receipt | None = Field(**ONLY_WHEN_KNOWN)
    """What it used so far, when that was asked for."""
    deleted_at: datetime | None = Field(**ONLY_WHEN_KNOWN)
    """When its document was deleted: of the job, ids, times and codes are left."""


MAX_URLS: Final = 100
MAX_DEPENDENCIES: Final = 20
MAX_AGE_S: Final = 366 * 86_400


def _known(code: str) -> str:
    if not is_code(code):
        raise ValueError("Send a code of the list in docs/api.md, or http_ and a status.")
    return code


Code = Annotated[Identifier, AfterValidator(_known)]
"""Of the bounded set: codes are counted by name."""


class SubmitRequest(BaseModel):
    """Exactly one of `url`, `urls` and `content`; with the job type `delete` it is `delete`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: Url | None = None
    urls: list[Url] | None = Field(default=None, min_length=1, max_length=MAX_URLS)
    # In the order of Job: Python keeps one of equal unions, and the contract its order.
    kind: Literal["crawl", "sitemap", "page"] | None = None
    """`crawl`: also the pages that `url` leads to; `sitemap`: the pages that the sitemap at `url` lists;
    `page`, as by default: one job."""
    dry_run: bool | None = None
    """Make no job: fetch up to five URLs and tell what their jobs would find and cost."""
    crawl: CrawlRequest | None = None
    """Rules for the pages that a crawl or a sitemap adds; without it the defaults."""
    content: Content | None = None
    """A document without a URL."""
    corpus_name: CorpusName | None = None
    """None means the corpus "default"."""
    job_type: Literal["index", "delete"] = "index"
    delete: Deletion | None = None
    """Which documents of the corpus a job of the type `delete` takes away."""
    priority: int = Field(default=50, ge=0, le=100)
    """Higher starts earlier among the caller's own jobs."""
    depends_on: list[str] = Field(default_factory=list, max_length=MAX_DEPENDENCIES)
    """The caller's own jobs that must be done before these start; they fail when one of them fails."""
    force: bool = False
    """Start new jobs beside those in flight for the same documents, and process pages that did not change."""
    on_behalf_of: str | None = Field(default=None, pattern=CALLER_ID)
    """Caller whose jobs these become; internal callers only."""
    budget: Budget | None = None
    """Bounds of each of the jobs; the caller's tier may have lower ones."""
    max_age: int | None = Field(default=None, ge=0, le=MAX_AGE_S)
    """Seconds: a page that its site sent at most so long ago is not fetched again. 0 is always too old."""

    when_gone: Literal["keep", "mark_stale"] | None = None
    """What becomes of a published document whose page is gone (404 or 410): nothing, as by default, or search
    shows it as stale. It is never deleted."""

    accept: Accept = None
    """Read a page that looks like a log-in or like a "not found" page all the same."""

    metadata: Metadata = None
    """What search shows of the documents and filters by. It replaces what they have; None leaves that."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.job_type == "delete") != (self.delete is not None):
            raise ValueError('Send delete with "job_type": "delete", and only then.')
        if self.delete is not None:
            self._check_deletion()
            return self
        if [self.url, self.urls, self.content].count(None) != 2:
            raise ValueError("Send exactly one of url, urls and content.")
        if self.kind in ("crawl", "sitemap") and self.url is None:
            raise ValueError("A crawl and a sitemap have one url.")
        if self.crawl is not None and self.kind not in ("crawl", "sitemap"):
            raise ValueError('crawl is for "kind": "crawl" and "kind": "sitemap".')
        if self.dry_run and self.content is not None:
            raise ValueError("A dry run is for URLs.")
        if self.max_age and (self.force or self.content is not None):
            raise ValueError("max_age is for pages: send it without force and content.")
        return self

    def _check_deletion(self) -> None:
        taken = {"job_type", "delete", "corpus_name", "dry_run", "on_behalf_of"}
        if more := sorted(self.model_fields_set - taken):
            raise ValueError(f"A deletion takes no {more[0]}.")

    @property
    def rules(self) -> CrawlRules:
        """Return the rules of a crawl, or of a sitemap, whose pages are always of its host."""
        rules = CrawlRules() if self.crawl is None else CrawlRules.model_validate(self.crawl.model_dump())
        return rules.model_copy(update={"same_host": True}) if self.kind == "sitemap" else rules


class SubmitResponse(BaseModel):
    """What was accepted."""

    job_id: str
    """The only job, or the first of `job_ids`."""
    status: Literal["pending"] = "pending"
    url_count: int
    job_ids: list[str] | None = None
    """Beside `urls`, in order; null for a single `url`."""
    batch_id: str | None = None
    """Of `urls`, and of a crawl or a sitemap, whose further jobs belong to it too."""
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


class JobCounts(BaseModel):
    """Numbers of the caller's jobs, by status."""

    total: int
    by_status: dict[str, int]
    """All six statuses."""
    failed_stages: dict[str, int]
    """The failed ones, by the stage that failed."""
    capped: list[str]
    """Statuses with more jobs than were counted; their numbers are lower bounds."""


class Health(BaseModel):
    """State of the service: acceptance of jobs, and its stages."""

    status: Literal["ok", "degraded", "maintenance"]
    """`degraded`: jobs are accepted, and wait for a stage or their sites; `maintenance`: none is accepted."""
    version: str
    """Of the code."""
    release: str
    """`ReleaseId` of the deployment, if it has one."""
    stages: dict[str, Literal["up", "paused", "breaker_open"]]
    limits: Literal["shared", "local"] = "shared"
    """`local`: the state table does not answer, and each environment counts requests by itself."""
    other_model: bool = False
    """Whether documents have vectors of another model than today's, and have to be indexed again."""
    checked_at: datetime
    """Seconds ago at most: ten."""


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
    """Scraping: {text, title?, content_type?, final_url?}; chunking: {chunks}; embedding: {chunk_count,
    model?}."""
    error_code: Code | None = None
    error_message: DocumentText | None = Field(default=None, max_length=2000)
    attempt: int | None = Field(default=None, ge=1, le=MAX_INTEGER)
    """None means the job's current attempt."""
    message_id: Identifier | None = None
    """Id of the result: the same id is applied once."""


class ScrapedResult(BaseModel):
    """`result` of scraping."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: DocumentText
    title: Title | None = None
    content_type: Identifier = "text/markdown"
    final_url: Url | None = None
    """None means the job's own URL."""


class ReportedChunk(Chunk):
    """A chunk of `result` of chunking."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: DocumentText
    context: DocumentText = ""


class ChunkedResult(BaseModel):
    """`result` of chunking."""

    model_config = ConfigDict(extra="forbid", strict=True)

    chunks: list[ReportedChunk]


class EmbeddedResult(BaseModel):
    """`result` of embedding."""

    model_config = ConfigDict(extra="forbid", strict=True)

    chunk_count: Count
    model: Identifier = "external"


class StageCompleteResponse(BaseModel):
    """`already_advanced`, `job_failed`, or the job's new status."""

    status: str
