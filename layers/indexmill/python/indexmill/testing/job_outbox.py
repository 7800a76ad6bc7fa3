"""The messages of jobs in memory: held, claimed, sent, or set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from indexmill.orchestrator.ports import LEFT_AFTER, OutboxRow
from indexmill.platform.time.clock import Clock
from indexmill.testing.job_records import CLAIM, HELD, Row

_AFTER_FAILURE = timedelta(seconds=10)
_PARK_AFTER = 10


@dataclass
class InMemoryOutbox:
    """The outbox part of the job store."""

    clock: Clock
    rows: dict[str, Row] = field(default_factory=dict)

    def keep(self, row: OutboxRow, until: datetime) -> None:
        """Keep a message that somebody holds `until` then."""
        self.rows.setdefault(row.id, Row(row, until, len(self.rows)))

    def kept(self, job_id: str) -> dict[str, str]:
        """Return the newest payload of each stage."""
        return {row.row.stage: row.row.payload for row in self.rows.values() if row.row.job_id == job_id}

    def park(self, job_id: str) -> None:
        """Set the job's unsent messages aside."""
        for row in self.rows.values():
            row.parked = row.parked or (row.row.job_id == job_id and not row.sent)

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that nobody else holds."""
        now = self.clock.now()
        free = [row for row in self.rows.values() if _unsent(row) and row.claimed_until <= now][:limit]
        for row in free:
            row.claimed_until = now + CLAIM
        return [replace(row.row, tries=row.tries) for row in free]

    def take_over(self, ids: Sequence[str]) -> list[OutboxRow]:
        """Take these messages from whoever holds them."""
        named = (self.rows[each] for each in ids if each in self.rows)
        return self._taken([row for row in named if _unsent(row) and row.claimed_until < HELD])

    def left_behind(self, job_ids: Sequence[str]) -> list[OutboxRow]:
        """Take what was committed for these jobs some seconds ago and never tried to be sent."""
        before = self.clock.now() + CLAIM - LEFT_AFTER
        theirs = (row for row in self.rows.values() if row.row.job_id in job_ids and row.last_error is None)
        return self._taken([row for row in theirs if _unsent(row) and row.claimed_until < before])

    def _taken(self, rows: Sequence[Row]) -> list[OutboxRow]:
        for row in rows:
            row.claimed_until = self.clock.now() + CLAIM
        return [replace(row.row, tries=row.tries) for row in rows]

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        for message_id in ids:
            self.rows[message_id].sent_at = self.clock.now()

    def mark_failed(self, ids: Sequence[str], error: str, *, away: bool = False) -> None:
        """Give claimed messages back after a failed try."""
        for message_id in ids:
            row = self.rows[message_id]
            row.tries += not away
            row.last_error = error
            row.claimed_until = self.clock.now() + _AFTER_FAILURE
            row.parked = row.tries >= _PARK_AFTER and row.row.kind == "queue"
            if row.row.kind == "call":
                self.waits(row)

    def waits(self, row: Row) -> None:
        """Let the job of a call tell until when it waits."""
        raise NotImplementedError


def _unsent(row: Row) -> bool:
    return not row.sent and not row.parked
