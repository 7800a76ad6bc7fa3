"""Show a caller its jobs."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_jobs import JobList
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobStatus
from indexmill.orchestrator.ports import JobFilter, JobStore
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard

_PAUSES_S: Final = (1, 2, 3, 5, 10)


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """GET and list. Somebody else's job answers exactly like one that never was."""

    store: JobStore
    board: ProgressBoard

    def get(self, ctx: CallerContext, job_id: str) -> Job:
        """Return one job, with the progress of long work; raises CallerError(not_found)."""
        job = self.store.get(ctx.caller_id, job_id) if is_job_id(job_id) else None
        if job is None:
            raise CallerError(ErrorCode.NOT_FOUND, "No such job.")
        return with_work(job, self.board)

    def list(self, wanted: JobFilter, cursor: str | None) -> JobList:
        """Return one page; raises CallerError(validation_error) for a cursor that is not ours."""
        page = replace(wanted, limit=wanted.limit + 1, before=_decode(cursor) if cursor else None)
        found = self.store.find(page)
        jobs = found[: wanted.limit]
        more = len(found) > wanted.limit
        return JobList(jobs=jobs, count=len(jobs), next_cursor=_encode(jobs[-1]) if more else None)


def with_work(job: Job, board: ProgressBoard) -> Job:
    """Return the job with how far its long work is; other jobs cost no look at the board."""
    if job.status is not JobStatus.EMBEDDING or (job.chunk_count or 0) <= LONG_CHUNKS:
        return job
    work = board.get(job.job_id)
    if work is None or work.attempt != job.attempt:
        return job
    update = {"chunks_total": work.chunks_total, "chunks_done": work.chunks_done, "bytes": work.bytes}
    return job.model_copy(update={"progress": job.progress.model_copy(update=update)})


def poll_after_s(job: Job, now: datetime) -> int | None:
    """Return the seconds after which looking again makes sense, None when the job is over.

    The longer nothing happened, the longer: a client that follows it sees an end at most a third late.
    """
    if job.status.terminal:
        return None
    quiet = (now - job.updated_at).total_seconds()
    return next((pause for pause in _PAUSES_S if quiet < pause * 3), _PAUSES_S[-1])


def is_job_id(text: str) -> bool:
    """Say whether `text` can be a job's id at all."""
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
