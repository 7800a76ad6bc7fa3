"""Every minute: send what the relay left behind, and wake jobs that nothing happens to."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.orchestrator.ports import JobStore
from indexmill.orchestrator.relay import CallRelay
from indexmill.platform.observability import Observability

_BATCH = 100
_MOST_BATCHES = 50


@dataclass(frozen=True, slots=True)
class SweepJobs:
    """The schedule's use case. Two may run at once: rows are claimed, and copies stop at the fence."""

    store: JobStore
    relay: CallRelay
    observability: Observability

    def __call__(self) -> dict[str, int]:
        """Do one tick and return how many messages were sent again, by reason."""
        leftovers = 0
        for _ in range(_MOST_BATCHES):
            rows = self.store.claim(_BATCH)
            if not rows:
                break
            leftovers += len(rows)
            self.relay.run(rows)
        rescued = self.store.rescue(_BATCH)
        self.relay.run(rescued)
        for row in rescued:
            self.observability.log.warning("job.rescued", extra={"job_id": row.job_id, "stage": row.stage})
        self.observability.log.info("sweep.finished", extra={"leftovers": leftovers, "rescued": len(rescued)})
        return {"leftovers": leftovers, "rescued": len(rescued)}
