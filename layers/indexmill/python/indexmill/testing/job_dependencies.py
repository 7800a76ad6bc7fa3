"""Jobs in memory that wait for other jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import JobError, JobStatus
from indexmill.orchestrator.dependencies import (
    circle,
    failed_dependency,
    reaches_itself,
    unknown_dependency,
    waiting_for,
)
from indexmill.orchestrator.pipeline import FIRST

if TYPE_CHECKING:
    from indexmill.testing.job_records import Record
    from indexmill.testing.job_store import InMemoryJobs

_WAITS = "dependency"


def check(store: InMemoryJobs, caller_id: str, wanted: Sequence[str]) -> None:
    """Raise CallerError(validation_error) for a job that is unknown or somebody else's."""
    for position, job_id in enumerate(wanted):
        if store.get(caller_id, job_id) is None:
            raise unknown_dependency(position)


def connect(store: InMemoryJobs, job_ids: Sequence[str]) -> None:
    """Let the new jobs wait for their dependencies that are not done; fail them when one has failed."""
    if any(reaches_itself(_edges(store), job_id) for job_id in job_ids):
        raise circle()
    for job_id in job_ids:
        if _unmet(store, job_id):
            store.records[job_id].blocked_by = _WAITS
    wanted = {other for job_id in job_ids for other in store.records[job_id].depends_on}
    settle(store, sorted(other for other in wanted if store.records[other].job.status.terminal))


def settle(store: InMemoryJobs, ended: Sequence[str]) -> None:
    """Let go whoever waited for these jobs, which have ended."""
    for job_id in waiting_for(_edges(store), ended):
        record = store.records[job_id]
        if record.job.status is not JobStatus.PENDING:
            continue
        unmet = _unmet(store, job_id)
        lost = sorted(other.job.job_id for other in unmet if other.job.status is JobStatus.FAILED)
        if lost:
            message = f"Job {lost[0]}, which this one depends on, failed."
            stage = record.resume_stage or FIRST
            code = ErrorCode.DEPENDENCY_FAILED
            store.fail(record, JobError(stage=stage, code=code, message=message, at=store.clock.now()))
        elif not unmet:
            record.blocked_by = None


def still_waits(store: InMemoryJobs, job_id: str) -> bool:
    """Say whether a job that is retried waits for others; raises CallerError when one of them has failed."""
    unmet = _unmet(store, job_id)
    for other in unmet:
        if other.job.status is JobStatus.FAILED:
            raise failed_dependency(other.job.job_id)
    return bool(unmet)


def _edges(store: InMemoryJobs) -> dict[str, tuple[str, ...]]:
    return {job_id: record.depends_on for job_id, record in store.records.items() if record.depends_on}


def _unmet(store: InMemoryJobs, job_id: str) -> list[Record]:
    wanted = (store.records[other] for other in store.records[job_id].depends_on)
    return [record for record in wanted if record.job.status is not JobStatus.DONE]
