"""History of one job, with the check of its hash chain."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.contracts.http_history import JobHistory
from indexmill.contracts.identity import CallerContext
from indexmill.orchestrator.queries.jobs import is_job_id, unknown_job
from indexmill.orchestrator.store.jobs import JobStore


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """GET /orchestrator/jobs/{id}/history."""

    store: JobStore

    def __call__(self, ctx: CallerContext, job_id: str) -> JobHistory:
        """Return the history; raises CallerError(not_found)."""
        found = self.store.read(lambda tx: tx.history(ctx.caller_id, job_id)) if is_job_id(job_id) else None
        if found is None:
            raise unknown_job()
        return found
