"""Rows of jobs and of the outbox, as every act sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.cost import Budget
from indexmill.contracts.job import DuplicateOf, JobStatus
from indexmill.contracts.messages import Target
from indexmill.contracts.texts import Doubt

CLAIM_S: Final = 30
"""Seconds for which a process has claimed the messages that it committed or took."""
PARK_AFTER: Final = 10
"""Failed sends after which a message is parked, so that it never blocks the others."""


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
    kind: str | None = None
    """What it is in a crawl: `crawl` for the first page, `sitemap`, or `page`."""
    crawl_id: str | None = None
    """Of the crawl that it belongs to."""
    mark_stale: bool = False
    """Whether the document becomes stale when its page is gone."""
    accept: Sequence[Doubt] | None = None
    """Doubts despite which its page is read."""
    has_duplicates: bool = False
    """Whether its document names others or is named by them; known where results are applied."""
    original: DuplicateOf | None = None
    """What its page is a duplicate of; known when its text arrives."""
    is_shown: bool = False
    """Whether search has text of the document; known with that."""
    still_published: bool = False
    """Whether `previous` is published, and no older job can replace it; known where it matters."""
