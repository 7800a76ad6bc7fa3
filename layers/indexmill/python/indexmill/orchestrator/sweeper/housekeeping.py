"""Deletion of expired rows, a bounded batch at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from indexmill.orchestrator.store.sweep import Retention, SweepStore

_BATCH: Final = 1_000
_MOST_BATCHES: Final = 10


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes expired rows; the next tick continues."""

    store: SweepStore
    keep: Retention = field(default_factory=Retention)

    def __call__(self) -> dict[str, int]:
        """Delete and return how many rows, by kind. Raises TransientError."""
        done: Counter[str] = Counter()
        for _ in range(_MOST_BATCHES):
            batch = self.store.purge(self.keep, _BATCH)
            done.update(batch)
            if max(batch.values(), default=0) < _BATCH:
                break
        return dict(done)
