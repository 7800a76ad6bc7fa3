"""Show a caller what happened to a job, and whether anybody changed that afterwards."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Protocol

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_history import JobHistory
from indexmill.contracts.identity import CallerContext


class HistoryStore(Protocol):
    """Where transitions are kept. Raises TransientError(database_unavailable)."""

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the history of the caller's job, or None when it is unknown or somebody else's."""
        ...


@dataclass(frozen=True, slots=True)
class ReadHistory:
    """GET /orchestrator/jobs/{id}/history."""

    store: HistoryStore

    def __call__(self, ctx: CallerContext, job_id: str) -> JobHistory:
        """Return the history; raises CallerError(not_found)."""
        found = self.store.history(ctx.caller_id, job_id) if _is_id(job_id) else None
        if found is None:
            raise CallerError(ErrorCode.NOT_FOUND, "No such job.")
        return found


def _is_id(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
