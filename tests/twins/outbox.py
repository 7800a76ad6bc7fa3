"""The outbox: a table of the twin of the job store. Docstrings are the store's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from indexmill.orchestrator.store.rows import CLAIM_S, PARK_AFTER, OutboxRow
from indexmill.platform.time import Clock

Row = dict[str, Any]

CLAIM: Final = timedelta(seconds=CLAIM_S)
_AFTER_FAILURE: Final = timedelta(seconds=10)
_MESSAGE: Final = ("id", "job_id", "attempt", "stage", "payload", "tries", "caller_id")


@dataclass(kw_only=True)
class OutboxTable:
    """Messages by id, and row operations over them and the jobs."""

    clock: Clock
    jobs: dict[str, Row] = field(default_factory=dict)
    outbox: dict[str, Row] = field(default_factory=dict)

    def claim(self, limit: int) -> list[OutboxRow]:
        unsent = [row for row in self.outbox.values() if is_unsent(row) and row["claimed_until"]]
        return self._claimed([row for row in unsent if row["claimed_until"] <= self.clock.now()][:limit])

    def mark_sent(self, ids: Sequence[str]) -> None:
        for each in ids:
            self.outbox[each]["sent_at"] = self.clock.now()

    def mark_failed(self, ids: Sequence[str], error: str, *, unavailable: bool = False) -> None:
        for row in (self.outbox[each] for each in ids):
            now = self.clock.now()
            row.update(
                tries=row["tries"] + (not unavailable), last_error=error, claimed_until=now + _AFTER_FAILURE
            )
            row["parked_at"] = now if row["tries"] >= PARK_AFTER else None

    def _keep(self, row: OutboxRow, *, claimed_until: datetime | None) -> None:
        """Keep a message; None: it waits for its job's admission."""
        states = dict.fromkeys(("sent_at", "parked_at", "last_error"))
        columns = {name: getattr(row, name) for name in _MESSAGE}
        columns["caller_id"] = self.jobs[row.job_id]["caller_id"]
        self.outbox[row.id] = {**columns, **states, "rescues": 0, "claimed_until": claimed_until}

    def _park(self, job_id: str) -> None:
        for row in self.outbox.values():
            if row["job_id"] == job_id and is_unsent(row):
                row["parked_at"] = self.clock.now()

    def _claimed(self, messages: Sequence[Row]) -> list[OutboxRow]:
        for row in messages:
            row["claimed_until"] = self.clock.now() + CLAIM
        return [OutboxRow(**{name: row[name] for name in _MESSAGE}) for row in messages]


def is_unsent(row: Row) -> bool:
    return row["sent_at"] is None and row["parked_at"] is None
