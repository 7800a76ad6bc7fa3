"""Port of the outbox relay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from indexmill.orchestrator.jobs.rows import OutboxRow


class Outbox(Protocol):
    """Committed messages that are to be sent. All calls raise TransientError(database_unavailable)."""

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that no process has claimed."""
        ...

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        ...

    def mark_failed(self, ids: Sequence[str], error: str, *, unavailable: bool = False) -> None:
        """Give claimed messages back after a failed try; one that failed too often is parked.

        `unavailable`: the queue took nothing at all, which does not count as a failure of these messages.
        """
        ...
