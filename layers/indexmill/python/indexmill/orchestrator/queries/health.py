"""Health of the service, readable without a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from indexmill import VERSION
from indexmill.contracts.http_jobs import Health
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.jobs.store import JobStore
from indexmill.orchestrator.queries.jobs import reasons_by_stage
from indexmill.platform.time.clock import Clock

CACHED_S: Final = 10.0


@dataclass(slots=True)
class ReadHealth:
    """Looks at most every `CACHED_S` seconds, however often it is asked: it needs no key."""

    store: JobStore
    clock: Clock
    release: str = ""
    _known: Health | None = None
    _until_s: float = 0.0

    def __call__(self) -> Health:
        """Return the health; raises TransientError(database_unavailable): then no job can be submitted."""
        now_s = self.clock.monotonic()
        if self._known is None or now_s >= self._until_s:
            reasons = self.store.read(reasons_by_stage)
            self._known = Health(
                status="degraded" if reasons else "ok",
                version=VERSION,
                release=self.release,
                stages={stage.name: reasons.get(stage.name, "up") for stage in STAGES},
                checked_at=self.clock.now(),
            )
            self._until_s = now_s + CACHED_S
        return self._known
