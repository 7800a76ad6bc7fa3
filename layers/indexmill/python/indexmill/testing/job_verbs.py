"""JobVerbs in memory, over the records of `InMemoryJobs`."""

from __future__ import annotations

from collections import Counter
from datetime import datetime

from indexmill.contracts.job import JobStatus
from indexmill.orchestrator import verb_rules as rules
from indexmill.orchestrator.resend import Renewal, renewed, stage_to_resume
from indexmill.orchestrator.verb_ports import BatchLine, Original, Outcome
from indexmill.testing import job_dependencies
from indexmill.testing.job_records import HELD, CatalogueRow, Record
from indexmill.testing.job_store import InMemoryJobs


class InMemoryVerbs:
    """What callers do with their own jobs."""

    def __init__(self, store: InMemoryJobs) -> None:
        """Works on the jobs of `store`."""
        self._store = store

    def cancel(self, caller_id: str, job_id: str, reason: str, at: datetime) -> Outcome:
        """Fail the job with code `canceled`."""
        store, record = self._store, self._own(caller_id, job_id)
        state = store.state_of(record)
        if rules.same_cancel(state.status, record.job.error, reason, at):
            return Outcome(record.job, [])
        rules.check_cancel(state)
        error = rules.canceled(state, record.resume_stage, reason, at)
        store.fail(record, error)
        if record.issued is not None:
            store.fence({record.target.document_id: record.issued})
        job_dependencies.settle(store, [job_id])
        rows = store.admit_all()
        return Outcome(store.told(record), rows)

    def retry(self, caller_id: str, job_id: str, message_id: str) -> Outcome:
        """Make the failed job pending again, with its stage's kept message."""
        store, record = self._store, self._own(caller_id, job_id)
        job = record.job
        if message_id in store.rows:
            return Outcome(job, [])
        rules.check_retry(job.status)
        waits = job_dependencies.still_waits(store, job_id)
        other = store.in_flight(record.target.document_id)
        if other is not None and not record.forced:
            raise rules.at_work(other.job_id)
        state, kept = store.state_of(record), store.kept(job_id)
        stage = stage_to_resume(job.failed_stage or "", kept, job.error, outdated=self._outdated(record))
        renewal = Renewal(message_id, job.attempt + 1, store.next_generation())
        row = renewed(state, stage, kept.get(stage), renewal)
        if record.issued is not None:
            store.fence({record.target.document_id: record.issued})
        if stage == "embedding":
            record.issued = renewal.generation
        record.resume_stage, record.ended_at, record.admitted_at = stage, None, None
        record.blocked_by = "dependency" if waits else None
        store.park(job_id)
        store.keep(row, HELD)
        nothing = dict.fromkeys(("error", "failed_stage", "attempts", "expected_by"))
        store.move(record, JobStatus.PENDING, attempt=row.attempt, **nothing)
        rows = store.admit_all()
        return Outcome(store.told(record), rows)

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the job with what doing it again takes."""
        record = self._store.records.get(job_id)
        if record is None or record.caller_id != caller_id:
            return None
        return Original(record.job, record.target, record.stored, record.facts, record.payload_digest)

    def batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Return how many of the batch's jobs stand where."""
        jobs = (record.job for record in self._store.records.values() if record.caller_id == caller_id)
        counts = Counter(
            (job.status, job.error.code if job.error else None) for job in jobs if job.batch_id == batch_id
        )
        return [BatchLine(status, code, count) for (status, code), count in counts.items()]

    def _own(self, caller_id: str, job_id: str) -> Record:
        record = self._store.records.get(job_id)
        if record is None or record.caller_id != caller_id:
            raise rules.unknown_job()
        return record

    def _outdated(self, record: Record) -> bool:
        row = self._store.catalogue.get(record.target.document_id, CatalogueRow())
        since = record.ended_at
        published, at = row.published, row.updated_at
        return published is not None and at is not None and since is not None and at > since
