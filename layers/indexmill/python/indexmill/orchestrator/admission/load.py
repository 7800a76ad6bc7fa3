"""Load of all jobs: those that wait or are in flight, and how long one waits for capacity."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.pressure import Load


@dataclass(frozen=True, slots=True)
class JobLoad:
    """LoadSource of the jobs of all callers."""

    store: JobStore
    most: int
    """Jobs beyond which nothing is counted."""

    def load(self) -> Load:
        """Return it. Raises TransientError(database_unavailable)."""
        return self.store.read(lambda tx: tx.load(self.most + 1))
