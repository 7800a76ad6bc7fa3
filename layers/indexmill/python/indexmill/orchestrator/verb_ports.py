"""What a caller's own verbs on its jobs need of the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import Stored, Target
from indexmill.orchestrator.ports import OutboxRow


@dataclass(frozen=True, slots=True)
class Outcome:
    """A job after a verb."""

    job: Job
    outbox: list[OutboxRow]
    """Messages of every job of the caller that may go out now; claimed by us."""


@dataclass(frozen=True, slots=True)
class Original:
    """A job with what doing it again takes."""

    job: Job
    target: Target
    stored: Stored | None = None
    """Its raw content, when that was kept."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What went into its result."""
    payload_digest: str | None = None


@dataclass(frozen=True, slots=True)
class BatchLine:
    """Jobs of a batch that stand alike."""

    status: JobStatus
    code: str | None
    """Of their error."""
    count: int


class JobVerbs(Protocol):
    """Changes of a caller's own jobs, each in one transaction with what follows from it.

    All calls raise TransientError(database_unavailable). Those that change something raise CallerError:
    not_found for an unknown job and for somebody else's, invalid_transition when the verb does not fit.
    """

    def cancel(self, caller_id: str, job_id: str, reason: str, at: datetime) -> Outcome:
        """Fail the job with code `canceled`; nothing of it is published any more."""
        ...

    def retry(self, caller_id: str, job_id: str, message_id: str) -> Outcome:
        """Make the failed job pending again, one attempt higher, with its stage's kept message.

        `message_id` becomes the new message's id.
        """
        ...

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the job with what doing it again takes, or None when it is unknown or somebody else's."""
        ...

    def batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Return how many of the batch's jobs stand where; empty for an unknown batch."""
        ...


class Successor(Protocol):
    """Another function, which has the time to go on with messages that this process holds."""

    def go_on(self, message_ids: Sequence[str]) -> None:
        """Have them run; returns before they are. Raises TransientError(queue_unavailable)."""
        ...
