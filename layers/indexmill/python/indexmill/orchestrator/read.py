"""Show a caller its jobs."""

from __future__ import annotations

import base64
import binascii
import json
import uuid
from dataclasses import dataclass, replace
from datetime import datetime

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_jobs import JobList
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job
from indexmill.orchestrator.ports import JobFilter, JobStore


@dataclass(frozen=True, slots=True)
class ReadJobs:
    """GET and list. Somebody else's job answers exactly like one that never was."""

    store: JobStore

    def get(self, ctx: CallerContext, job_id: str) -> Job:
        """Return one job; raises CallerError(not_found)."""
        job = self.store.get(ctx.caller_id, job_id) if _is_id(job_id) else None
        if job is None:
            raise CallerError(ErrorCode.NOT_FOUND, "No such job.")
        return job

    def list(self, wanted: JobFilter, cursor: str | None) -> JobList:
        """Return one page; raises CallerError(validation_error) for a cursor that is not ours."""
        page = replace(wanted, limit=wanted.limit + 1, before=_decode(cursor) if cursor else None)
        found = self.store.find(page)
        jobs = found[: wanted.limit]
        more = len(found) > wanted.limit
        return JobList(jobs=jobs, count=len(jobs), next_cursor=_encode(jobs[-1]) if more else None)


def _is_id(text: str) -> bool:
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
    if moment.tzinfo is None or not isinstance(job_id, str) or not _is_id(job_id):
        raise _foreign()
    return moment, job_id


def _foreign() -> CallerError:
    return CallerError(ErrorCode.VALIDATION_ERROR, "This cursor is not one of ours.", field="query.cursor")
