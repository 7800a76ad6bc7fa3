"""Functions that answer callers send what is quick and hand over the rest: no caller waits for Chunking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports import OutboxRow
from indexmill.orchestrator.relay import CallRelay, Relay, too_large


class Successor(Protocol):
    """Another function, which has the time to go on with messages that this process holds."""

    def go_on(self, message_ids: Sequence[str]) -> None:
        """Have them run; returns before they are. Raises TransientError(queue_unavailable)."""
        ...


@dataclass(frozen=True, slots=True)
class HandOver:
    """Sends outbox rows that this process holds; another one goes on with those that take longer."""

    relay: Relay
    successor: Successor

    def send(self, rows: Sequence[OutboxRow]) -> None:
        """Send the rows of queue stages and hand over the others. Never raises for what is away.

        What is lost on its way is the sweeper's when our claim runs out, like everything else.
        """
        self.relay.send(rows)
        rest = [row.id for row in rows if row.kind == "call" or too_large(row)]
        if not rest:
            return
        try:
            self.successor.go_on(rest)
        except TransientError as error:
            self.relay.note_failed(rest, error.code, away=True)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Goes on with rows that another process held."""

    store: JobStore
    relay: CallRelay

    def __call__(self, message_ids: Sequence[str]) -> int:
        """Run these rows to their end, less those that are out already; return how many.

        Told of twice they are run twice at worst, and the second result is a copy, which does not count.
        Raises TransientError.
        """
        rows = self.store.take_over(message_ids)
        self.relay.run(rows)
        return len(rows)
