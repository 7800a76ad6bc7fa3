"""Rows that several acts share, and every statement of this folder by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from indexmill.contracts.cost import Budget
from indexmill.contracts.crawl import CrawlRules
from indexmill.contracts.identity import Accept, Usage
from indexmill.contracts.job import DuplicateOf, JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.platform.postgres.database import load
from indexmill.platform.security.urls import DomainRate

CLAIM_S: Final = 30
"""Seconds for which a process has claimed the messages that it committed or took."""
PARK_AFTER: Final = 10
"""Failed sends after which a message is parked, so that it never blocks the others."""
MOST_RESCUES: Final = 3
"""A message that was redispatched so often without effect will not get through."""
AHEAD: Final = timedelta(seconds=5)
"""Longest time between the admission of a job and its token at the site."""
_MOST_OF_SITE: Final = 100
"""Jobs of one site that leave in one transaction."""
SQL: Final = load(
    Path(__file__).parent, {"claim_s": CLAIM_S, "park_after": PARK_AFTER, "most_rescues": MOST_RESCUES}
)
Row = Mapping[str, Any]
"""By column name."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A message that is committed with the state change that caused it, and sent afterwards."""

    id: str
    """Also the message's id, in every copy."""
    job_id: str
    attempt: int
    stage: str
    payload: str
    """The body to send, as JSON."""
    tries: int = 0
    """Failed tries to send it."""
    caller_id: str = ""
    """Whose job it is: its group in the queue."""
    admits: bool = False
    """Whether its job was admitted with it: the first message of an attempt, once."""


@dataclass(frozen=True, slots=True)
class Previous:
    """The published version of a document, by the job that published it or found it unchanged last."""

    job_id: str
    title: str | None
    chunk_count: int | None
    facts: dict[str, Any]
    """What went into it: digests, and the versions of the code that made it."""


@dataclass(frozen=True, slots=True)
class JobState:
    """A job as decisions see it; its row is locked meanwhile."""

    job_id: str
    status: JobStatus
    attempt: int
    target: Target
    generation: int
    """A fresh number for a message that publishes."""
    title: str | None = None
    content_sha256: str | None = None
    """Digest of the raw content that was fetched."""
    previous: Previous | None = None
    """The document's published version when the job was submitted; None for a document without one."""
    issued: int | None = None
    """Number of the newest message that publishes."""
    has_dependents: bool = False
    """Whether other jobs wait for this one."""
    budget: Budget | None = None
    spent_usd: float = 0.0
    """Price of what the job used before; known where its budget has a bound for it."""
    visible: bool = False
    """Whether search sees what that message published, or something newer; known where it matters."""
    searchable_at: datetime | None = None
    """Since when search sees just that; known where it matters."""
    kind: str | None = None
    """What it is in a crawl: `crawl` for the first page, `sitemap`, or `page`."""
    crawl_id: str | None = None
    """Of the crawl that it belongs to."""
    job_type: str = "index"
    """`index`, or `delete`."""
    mark_stale: bool = False
    """Whether the document becomes stale when its page is gone."""
    accept: Accept = None
    """Doubts despite which its page is read."""
    metadata: dict[str, str] | None = None
    """Of the document; None leaves what it has."""
    page: dict[str, Any] | None = None
    """Facts of the page that was fetched, as in PageFacts."""
    has_duplicates: bool = False
    """Whether its document names others or is named by them; known where results are applied."""
    corpus_is_deleted: bool = False
    """Whether its corpus was deleted while the job was submitted; known where results are applied."""
    original: DuplicateOf | None = None
    """What its page is a duplicate of; known when its text arrives."""
    is_shown: bool = False
    """Whether search has text of the document; known with that."""
    still_published: bool = False
    """Whether `previous` is published, and no older job can replace it; known where it matters."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """Fields that the jobs of a request share; a crawl keeps them for the jobs of its pages."""

    tier: str = "free"
    caller_type: str = "unknown"
    submitted_by: str | None = None
    """The internal caller who submitted it for the one that it belongs to."""
    request_id: str | None = None
    job_type: str = "index"
    priority: int = 50
    forced: bool = False
    """Whether a job starts although another one of the same document is in flight."""
    mark_stale: bool = False
    """Whether a published document becomes stale when its page is gone."""
    budget: Budget | None = None
    """As asked for; the caller's quota may have lower bounds."""
    max_age_s: int | None = None
    """Up to this age of what is known of a page its site is not asked."""
    accept: Accept = None
    """Doubts despite which a page is read."""
    metadata: dict[str, str] | None = None
    """Of the documents; None leaves what they have."""
    recipe: dict[str, Any] | None = None
    """Facts of what today's chunker and model make; None for jobs whose document is processed even when it is
    unchanged."""
    rules: CrawlRules = field(default_factory=CrawlRules)
    """Of a crawl's pages."""


SHARED: Final = tuple(each.name for each in fields(JobSpec))


@dataclass(frozen=True)
class NewJob(JobSpec):
    """A job about to be accepted, with its first message."""

    job_id: str
    target: Target
    submitted_url: str
    batch_id: str | None
    first: OutboxRow
    payload_digest: str | None = None
    depends_on: tuple[str, ...] = ()
    """Jobs that must be done first; the same for all jobs of a submit."""
    replay_of: str | None = None
    given: Stored | None = None
    """Content that came with the submit, for a document without a URL."""
    site: str | None = None
    """Site of its page, when that has a limit and holds it back."""
    eligible_at: datetime | None = None
    """Estimate of when its site lets it start; None: it does now."""
    kind: str | None = None
    """What it is in a crawl; the same for all jobs of a submit, and None for one outside of crawls."""
    corpus_owner: str | None = None
    """Whose corpora the name is one of, where it is to be resolved; the same for all jobs of a submit."""
    linked: bool = False
    """Whether the links of its page are wanted: without them a page that is unchanged is read again."""


class CorpusMoved(Exception):
    """The corpus of a submit's name has another key than the one that its jobs were made with."""

    def __init__(self, key: str) -> None:
        """`key` is the right one."""
        super().__init__(key)
        self.key = key


@dataclass(frozen=True, slots=True)
class InFlight:
    """A job that has not ended, by its document."""

    document_id: str
    job_id: str
    status: JobStatus
    expected_by: datetime | None
    caller_id: str
    content_sha256: str | None = None
    """Of its raw content, as far as that is known."""
    accept: Accept = None
    metadata: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pending job."""

    job_id: str
    priority: int
    since: datetime


@dataclass(frozen=True, slots=True)
class CallerQueue:
    """A caller's pending jobs in the order in which they start; at least the first ones."""

    usage: Usage
    jobs: Sequence[Candidate]


@dataclass(frozen=True, slots=True)
class GlobalUsage:
    """Usage of all callers together."""

    now: datetime
    active: int = 0
    callers: int = 0
    """Callers with jobs in flight."""
    paused: bool = False
    """Whether an operator paused the first stage."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Recent durations of jobs."""

    duration_s: float | None = None
    """From start to end; three of four jobs were faster. None when no job was done yet."""
    abreast: float = 1.0
    """Jobs that were in flight together, on average over the time of each; `duration_s` depends on it."""


@dataclass(frozen=True, slots=True)
class SiteStarts:
    """Starts of one site's jobs: a bucket with its rate, and those that are held back. The row is locked."""

    site: str
    now: datetime
    full_at: datetime
    last_at: datetime
    """Estimate of when the last of its held-back jobs leaves."""
    due_at: datetime | None = None
    """Time from which the next one may leave; None when none is held back."""
    last_caller: str = ""
    """The caller whose held-back job left last, or who was looked at last when none could."""

    def startable(self, rate: DomainRate | None) -> int:
        """Return how many of the site's jobs may be admitted now."""
        if rate is None:
            return _MOST_OF_SITE
        ahead = AHEAD + timedelta(seconds=rate.burst * rate.interval_s)
        left = (ahead - (max(self.full_at, self.now) - self.now)).total_seconds()
        return max(0, min(_MOST_OF_SITE, math.floor(left * rate.per_second + 1e-6)))

    def free(self, rate: DomainRate | None) -> int:
        """Return how many new jobs may be admitted: none while others are held back, which leave before them.

        With a full bucket those that are held back cannot start, because of their callers' quotas.
        """
        full = self.full_at <= self.now
        return self.startable(rate) if self.due_at is None or full else 0

    def started(self, rate: DomainRate | None, count: int) -> SiteStarts:
        """Return the site's state after `count` jobs were admitted."""
        if rate is None:
            return self
        taken = timedelta(seconds=count * rate.interval_s)
        return replace(self, full_at=max(self.full_at, self.now) + taken)

    def next_at(self, rate: DomainRate | None) -> datetime:
        """Return when one more may be admitted."""
        if rate is None:
            return self.now
        return self.full_at - AHEAD - timedelta(seconds=(rate.burst - 1) * rate.interval_s)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A job that is about to fetch its page."""

    job_id: str
    url: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A job that its site holds back."""

    site: str
    eligible_at: datetime
    """Estimate of when it leaves."""
    failing: bool = False
    """Whether the site failed several times and is left alone."""


@dataclass(frozen=True, slots=True)
class Released:
    """Jobs of one site that left."""

    callers: Sequence[str]
    """Of each job, in the order in which they left."""
    more: bool
    """Whether others are still held back."""
    seen: str
    """The last caller that was looked at, and found to have nothing that may leave."""


def as_in_flight(row: Row) -> InFlight:
    """Return the job as a submit of the same document sees it."""
    stored = Stored.model_validate(row["raw_ref"]) if row["raw_ref"] else None
    return InFlight(
        row["document_id"],
        row["id"],
        JobStatus(row["status"]),
        row["expected_by"],
        row["caller_id"],
        stored.ref.sha256 if stored else None,
        row["accept"],
        row["metadata"],
    )
