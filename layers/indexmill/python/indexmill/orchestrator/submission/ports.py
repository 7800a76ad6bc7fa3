"""Rows and port of submission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from indexmill.contracts.content import BlobRef
from indexmill.contracts.cost import Amounts, Budget
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.given import UploadRequest
from indexmill.contracts.job import JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.contracts.texts import Doubt
from indexmill.orchestrator.jobs.rows import OutboxRow


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job about to be accepted, with its first message."""

    job_id: str
    target: Target
    submitted_url: str
    batch_id: str | None
    first: OutboxRow
    tier: str = "free"
    job_type: str = "index"
    priority: int = 50
    forced: bool = False
    """Whether the job starts although another one of the same document is in flight."""
    payload_digest: str | None = None
    depends_on: tuple[str, ...] = ()
    """Jobs that must be done first; the same for all jobs of a submit."""
    replay_of: str | None = None
    request_id: str | None = None
    budget: Budget | None = None
    """As asked for; the caller's quota may have lower bounds."""
    caller_type: str = "unknown"
    submitted_by: str | None = None
    """The internal caller who submitted it for the one that it belongs to."""
    given: Stored | None = None
    """Content that came with the submit, for a document without a URL."""
    mark_stale: bool = False
    """Whether a published document becomes stale when its page is gone; the same for all jobs of a submit."""
    site: str | None = None
    """Site of its page, when that has a limit and holds it back."""
    eligible_at: datetime | None = None
    """Estimate of when its site lets it start; None: it does now."""
    kind: str | None = None
    """What it is in a crawl; the same for all jobs of a submit, and None for one outside of crawls."""
    linked: bool = False
    """Whether the links of its page are wanted: without them a page that is unchanged is read again."""
    accept: Sequence[Doubt] | None = None
    """Doubts despite which its page is read; the same for all jobs of a submit."""
    recipe: Mapping[str, Any] | None = None
    """Facts of what today's chunker and model make, the same for all jobs of a submit; None for a job whose
    document is processed even when it is unchanged."""


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
    accept: Sequence[Doubt] | None = None


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An object that a caller uploaded."""

    ref: BlobRef
    content_type: str


class Uploads(Protocol):
    """Objects that callers put into the bucket by themselves, by key."""

    def grant(self, key: str, request: UploadRequest, valid_s: int) -> tuple[str, dict[str, str]]:
        """Return the URL of one PUT of that size, digest and type, and the headers that it must have."""
        ...

    def find(self, key: str) -> Uploaded | None:
        """Return what was put there, with the digest that the store checked.

        Raises TransientError(storage_unavailable).
        """
        ...


class CallerMoved(TransientError):
    """The caller became an alias of another one since its key was validated."""

    def __init__(self, root: str) -> None:
        """`root` is the other one; the gateway knows it when the validation expires."""
        super().__init__(
            ErrorCode.AUTH_UNAVAILABLE, "This key's caller was linked to another one.", retry_after=60
        )
        self.root = root


class SubmissionTx(Protocol):
    """Row operations of a submit."""

    def root_of(self, caller_id: str) -> str:
        """Return the caller that has the jobs of `caller_id`: the one that it is an alias of, or itself."""
        ...

    def add_alias(self, alias: str, root: str) -> None:
        """Record that `alias` is another id of `root`; a known id stays as it is."""
        ...

    def take_key(self, caller_id: str, key: str, digest: str) -> bool:
        """Claim an idempotency key for a request's digest; False when it was used within 24 hours."""
        ...

    def kept_answer(self, caller_id: str, key: str) -> tuple[str, str] | None:
        """Return digest and answer of the request that used the key."""
        ...

    def keep_answer(self, caller_id: str, key: str, answer: str) -> None:
        """Keep the answer (JSON) under its key."""
        ...

    def insert_jobs(
        self, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None], spent: Amounts
    ) -> set[str]:
        """Insert pending jobs with history and message; return the ids of those that were inserted.

        Each has `spent` on its receipt. A job is left out when another one is in flight for its document,
        unless it is forced; all are when the caller is an alias. A message gets the raw content of its
        document that is known, and a job its given content. `expected` is by job id.
        """
        ...

    def jobs_in_flight(self, document_ids: Sequence[str], job_ids: Sequence[str] = ()) -> list[InFlight]:
        """Return the unforced jobs in flight for the documents, and the jobs `job_ids` whatever they are."""
        ...
