"""Jobs, lists and batches as their caller sees them."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_actions import BatchSummary
from indexmill.contracts.http_jobs import JobList
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobStatus, Waiting
from indexmill.contracts.pipeline import BY_NAME
from indexmill.orchestrator.admission.admit import wait_reason
from indexmill.orchestrator.admission.forecast import eligible_at
from indexmill.orchestrator.jobs.store import JobStore, JobsTx
from indexmill.orchestrator.queries.ports import JobFilter, JobSnapshot
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard

_PAUSES_S: Final = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """Get, list and follow jobs. Another caller's job looks exactly like one that does not exist."""

    store: JobStore
    board: ProgressBoard

    def get(self, ctx: CallerContext, job_id: str) -> Job:
        """Return one job, with the progress of long work; raises CallerError(not_found)."""
        if not is_job_id(job_id):
            raise unknown_job()
        return _with_work(self.store.read(lambda tx: read_job(tx, ctx.caller_id, job_id)), self.board)

    def list(self, wanted: JobFilter, cursor: str | None) -> JobList:
        """Return one page; raises CallerError(validation_error) for a cursor that is not ours."""
        page = replace(wanted, limit=wanted.limit + 1, before=_decode(cursor) if cursor else None)

        def work(tx: JobsTx) -> list[Job]:
            return with_waiting(tx, wanted.caller_id, tx.find_jobs(page))

        found = self.store.read(work)
        jobs = found[: wanted.limit]
        more = len(found) > wanted.limit
        return JobList(jobs=jobs, count=len(jobs), next_cursor=_encode(jobs[-1]) if more else None)

    def batch(self, ctx: CallerContext, batch_id: str) -> BatchSummary:
        """Count the batch's jobs; raises CallerError(not_found)."""
        lines = []
        if is_job_id(batch_id):
            lines = self.store.read(lambda tx: tx.count_batch(ctx.caller_id, batch_id))
        if not lines:
            raise CallerError(ErrorCode.NOT_FOUND, "No such batch.")
        by_status = Counter({status.value: 0 for status in JobStatus})
        codes: Counter[str] = Counter()
        for line in lines:
            by_status[line.status.value] += line.count
            if line.code is not None:
                codes[line.code] += line.count
        total = by_status.total()
        done, failed = by_status[JobStatus.DONE.value], by_status[JobStatus.FAILED.value]
        return BatchSummary(
            batch_id=batch_id,
            total=total,
            done=done,
            failed=failed,
            finished=done + failed == total,
            by_status=dict(by_status),
            failed_codes=dict(codes),
        )

    def events_after(self, ctx: CallerContext, job_id: str, seq: int) -> JobSnapshot:
        """Return one job with its events after `seq`; raises CallerError(not_found)."""

        def work(tx: JobsTx) -> JobSnapshot:
            snapshot = tx.job_events(ctx.caller_id, job_id, seq) if is_job_id(job_id) else None
            if snapshot is None:
                raise unknown_job()
            (job,) = with_waiting(tx, ctx.caller_id, [snapshot.job])
            return replace(snapshot, job=job)

        snapshot = self.store.read(work)
        return replace(snapshot, job=_with_work(snapshot.job, self.board))


def read_job(tx: JobsTx, caller_id: str, job_id: str) -> Job:
    """Return the caller's job with what it waits for; raises CallerError(not_found)."""
    job = tx.job(caller_id, job_id)
    if job is None:
        raise unknown_job()
    return with_waiting(tx, caller_id, [job])[0]


def with_waiting(tx: JobsTx, caller_id: str, jobs: Sequence[Job]) -> list[Job]:
    """Return the caller's `jobs`, the pending ones with reason, position and estimated start."""
    ids = [job.job_id for job in jobs if job.status is JobStatus.PENDING]
    if not ids:
        return list(jobs)
    waits: dict[str, Waiting] = {}
    positions = tx.positions(caller_id, ids)
    if positions:
        *_, (_, tier) = positions.values()
        usage, overall, _ = tx.usage(caller_id, tier)
        pace = tx.pace()
        reason, _ = wait_reason(usage, tx.limits, overall)
        for job_id, (position, _) in positions.items():
            at = eligible_at(position, usage, tx.limits, overall, pace)
            waits[job_id] = Waiting(reason=reason, position=position, next_eligible_at=at)
    if blocked := [job_id for job_id in ids if job_id not in waits]:
        by = tx.blockers(blocked)
        waits |= {id_: Waiting(reason="dependency", blocked_by=by.get(id_)) for id_ in blocked}
    return [job.model_copy(update={"waiting": waits.get(job.job_id)}) for job in jobs]


def unknown_job() -> CallerError:
    """Return the error for an unknown job, and for another caller's."""
    return CallerError(ErrorCode.NOT_FOUND, "No such job.")


def _with_work(job: Job, board: ProgressBoard) -> Job:
    """Return the job with the progress of its long work; other jobs need no read of the board."""
    stage = BY_NAME.get(job.status.value)
    if stage is None or not stage.publishes or (job.chunk_count or 0) <= LONG_CHUNKS:
        return job
    work = board.get(job.job_id)
    if work is None or work.attempt != job.attempt:
        return job
    update = {"chunks_total": work.chunks_total, "chunks_done": work.chunks_done, "bytes": work.bytes}
    return job.model_copy(update={"progress": job.progress.model_copy(update=update)})


def poll_after_s(job: Job, now: datetime) -> int | None:
    """Return the seconds until the next poll, None when the job has ended.

    They grow with the time since the last change: a client that follows them sees an end at most a third
    late.
    """
    if job.status.terminal:
        return None
    quiet = (now - job.updated_at).total_seconds()
    return next((pause for pause in _PAUSES_S if quiet < pause * 3), _PAUSES_S[-1])


def is_job_id(text: str) -> bool:
    """Return whether `text` has the form of a job's id."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


def _encode(job: Job) -> str:
    return base64.urlsafe_b64encode(json.dumps([job.created_at.isoformat(), job.job_id]).encode()).decode()


def _decode(cursor: str) -> tuple[datetime, str]:
    try:
        at, job_id = json.loads(base64.urlsafe_b64decode(cursor.encode()))
        moment = datetime.fromisoformat(at)
    except (ValueError, TypeError, binascii.Error) as error:
        raise _foreign() from error
    if moment.tzinfo is None or not isinstance(job_id, str) or not is_job_id(job_id):
        raise _foreign()
    return moment, job_id


def _foreign() -> CallerError:
    return CallerError(ErrorCode.VALIDATION_ERROR, "This cursor is not one of ours.", field="query.cursor")
