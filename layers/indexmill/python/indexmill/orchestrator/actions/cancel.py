"""Cancel: fail a job at its caller's request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.actions.ports import LockedJob
from indexmill.orchestrator.admission.admit import admit
from indexmill.orchestrator.admission.dependencies import settle_dependents
from indexmill.orchestrator.jobs.rows import OutboxRow
from indexmill.orchestrator.jobs.store import JobStore, JobsTx
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, read_job, unknown_job
from indexmill.orchestrator.results.published import with_visibility
from indexmill.platform.time.clock import Clock


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The cancel use case."""

    store: JobStore
    relay: Relay
    clock: Clock

    def __call__(self, ctx: CallerContext, job_id: str, reason: str, request_id: str = "") -> Job:
        """Return the job, failed with code `canceled`; later results of it change nothing.

        A job that is canceled already is returned as it is. Raises CallerError: not_found, or
        invalid_transition for a job that ended otherwise or is published already.
        """
        if not is_job_id(job_id):
            raise unknown_job()
        at = self.clock.now()

        def work(tx: JobsTx) -> tuple[Job, list[OutboxRow]]:
            locked = tx.lock_job(ctx.caller_id, job_id)
            if locked is None:
                raise unknown_job()
            if _is_canceled(locked):
                return read_job(tx, ctx.caller_id, job_id), []
            if locked.state.status.terminal:
                raise _refused(f"The job has ended: it is {locked.state.status.value}.")
            (state,) = with_visibility(tx, [locked.state])
            if state.visible:
                raise _refused("The document is published already.", "The job will be done in a moment.")
            tx.cancel_job(job_id, state.status, _error(locked, reason, at), request_id or None)
            if state.issued is not None:
                tx.raise_fences({state.target.document_id: state.issued})
            if state.has_dependents:
                settle_dependents(tx, [job_id])
            messages = admit(tx, [ctx.caller_id])
            return read_job(tx, ctx.caller_id, job_id), messages

        job, messages = self.store.transaction(work)
        self.relay.send(messages)
        return job


def _is_canceled(locked: LockedJob) -> bool:
    """Return whether it was canceled before, also by a run of this call whose commit's answer was lost."""
    error = locked.error
    return locked.state.status is JobStatus.FAILED and error is not None and error.code == ErrorCode.CANCELED


def _refused(message: str, hint: str | None = None) -> CallerError:
    return CallerError(ErrorCode.INVALID_TRANSITION, message, hint=hint)


def _error(locked: LockedJob, reason: str, at: datetime) -> JobError:
    """Return the canceled job's error; a pending job counts for the stage it would start with."""
    status = locked.state.status
    stage = locked.resume_stage or FIRST if status is JobStatus.PENDING else status.value
    return JobError(stage=stage, code=ErrorCode.CANCELED, message=reason, at=at)
