"""The history that the in-memory job store keeps."""

from __future__ import annotations

import hashlib
import json

from indexmill.contracts.http_history import HistoryEntry, JobHistory
from indexmill.contracts.job import JobStatus
from indexmill.testing.job_store import InMemoryJobs


class InMemoryHistory:
    """HistoryStore over `jobs`; times are those of now, since the twin keeps none."""

    def __init__(self, jobs: InMemoryJobs) -> None:
        """`jobs` may change meanwhile."""
        self._jobs = jobs

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the history of the caller's job, or None."""
        job = self._jobs.get(caller_id, job_id)
        if job is None:
            return None
        entries: list[HistoryEntry] = []
        for owner, attempt, before, after in self._jobs.history:
            if owner != job_id:
                continue
            last = entries[-1].hash if entries else ""
            sealed = json.dumps([last, owner, attempt, before, after]).encode()
            entries.append(
                HistoryEntry(
                    attempt=attempt,
                    from_status=JobStatus(before) if before else None,
                    to_status=JobStatus(after),
                    at=self._jobs.clock.now(),
                    prev_hash=last,
                    hash=hashlib.sha256(sealed).hexdigest(),
                )
            )
        return JobHistory(job_id=job_id, entries=entries, intact=entries[-1].to_status == job.status)
