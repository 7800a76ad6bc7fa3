"""Dependencies: jobs that wait until other jobs are done."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.admission.admit import hold_back_pending
from indexmill.orchestrator.store.jobs import JobsTx


def wait_for(tx: JobsTx, caller_id: str, job_ids: Sequence[str], depends_on: Sequence[str]) -> None:
    """Let the new jobs wait for those of `depends_on` that are not done; fail them when one has failed.

    Raises CallerError(validation_error) for a job that is unknown or another caller's, and for a cycle.
    """
    known = tx.lock_dependencies(caller_id, depends_on)
    for position, job_id in enumerate(depends_on):
        if job_id not in known:
            raise CallerError(
                ErrorCode.VALIDATION_ERROR,
                "There is no such job to depend on.",
                field=f"body.depends_on.{position}",
            )
    tx.insert_dependencies(job_ids, depends_on)
    if tx.has_cycle(job_ids):
        raise CallerError(
            ErrorCode.VALIDATION_ERROR, "These jobs would wait for themselves.", field="body.depends_on"
        )
    if any(status is not JobStatus.DONE for status in known.values()):
        tx.block_jobs(job_ids)
    else:
        hold_back_pending(tx, job_ids)
    if JobStatus.FAILED in known.values():
        tx.fail_dependents(job_ids)


def settle_dependents(tx: JobsTx, ended: Sequence[str]) -> None:
    """Release the pending jobs that depend on these, which have ended: to start, or to fail with them."""
    waiting = tx.lock_dependents(ended)
    if waiting:
        tx.fail_dependents(waiting)
        hold_back_pending(tx, tx.unblock_jobs(waiting))


def is_blocked(tx: JobsTx, job_id: str) -> bool:
    """Return whether a job that is retried waits for others.

    Raises CallerError(invalid_transition) when one of them has failed.
    """
    unmet = tx.unmet_dependencies(job_id)
    for other, status in unmet.items():
        if status is JobStatus.FAILED:
            raise CallerError(
                ErrorCode.INVALID_TRANSITION,
                f"Job {other}, which this one depends on, has failed.",
                hint="Retry that one first.",
            )
    return bool(unmet)
