"""Cancel: fail a job at its caller's request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.admission.admit import admit
from indexmill.orchestrator.admission.dependencies import settle_dependents
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, read_job, unknown_batch, unknown_job
from indexmill.orchestrator.results.apply import with_visibility
from indexmill.orchestrator.store.actions import LockedJob
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.platform.progress import Cancels
from indexmill.platform.time import Clock

_AT_ONCE: Final = 100
"""Jobs that one transaction cancels."""


@dataclass(frozen=True, slots=True)
class CancelJob:
    """The cancel use case."""

    store: JobStore
    relay: Relay
    clock: Clock
    cancels: Cancels | None = None

    def __call__(self, ctx: CallerContext, job_id: str, reason: str, request_id: str = "") -> Job:
        """Return the job, failed with code `canceled`; later results of it change nothing.

        A job that is canceled already is returned as it is. Raises CallerError: not_found, or
        invalid_transition for a job that ended otherwise or is published already.
        """
        if not is_job_id(job_id):
            raise unknown_job()
        at = self.clock.now()

        def work(tx: JobsTx) -> tuple[Job, list[OutboxRow], dict[str, int]]:
            locked = tx.lock_job(ctx.caller_id, job_id)
            if locked is None:
                raise unknown_job()
            if locked.state.job_type == "delete":
                raise _refused("A deletion cannot be stopped: what it takes away is fenced out already.")
            if _is_canceled(locked):
                return read_job(tx, ctx.caller_id, job_id), [], {job_id: locked.state.attempt}
            if locked.state.status.terminal:
                raise _refused(f"The job has ended: it is {locked.state.status.value}.")
            (state,) = with_visibility(tx, [locked.state])
            if state.visible:
                raise _refused("The document is published already.", "The job will be done in a moment.")
            fail_canceled(tx, [locked], reason, at, request_id or None)
            messages = admit(tx, [ctx.caller_id])
            return read_job(tx, ctx.caller_id, job_id), messages, in_first_stage([locked])

        job, messages, fetching = self.store.transaction(work)
        # After the commit: a job whose cancel failed must be fetched.
        if self.cancels is not None and fetching:
            self.cancels.mark(fetching)
        self.relay.send(messages)
        return job


@dataclass(frozen=True, slots=True)
class CancelBatch:
    """The cancel use case of a batch, which may be a crawl."""

    store: JobStore
    relay: Relay
    clock: Clock
    cancels: Cancels | None = None

    def __call__(self, ctx: CallerContext, batch_id: str, reason: str, request_id: str = "") -> None:
        """Cancel all jobs of the batch that have not ended and are not published; a crawl gets no more.

        Call it again after a failure: what was canceled stays so. Raises CallerError(not_found).
        """
        lines = (
            self.store.read(lambda tx: tx.count_batch(ctx.caller_id, batch_id)) if is_job_id(batch_id) else []
        )
        if not lines:
            raise unknown_batch()
        if all(line.status.terminal for line in lines):
            # A crawl that has finished was not canceled.
            return
        # Committed first: jobs are locked before their crawl, and a page that is read meanwhile adds none.
        self.store.transaction(lambda tx: tx.cancel_crawl(ctx.caller_id, batch_id))
        at, spared = self.clock.now(), set[str]()
        fetching: dict[str, int] = {}

        def work(tx: JobsTx) -> bool:
            jobs = [
                each
                for each in tx.lock_batch(ctx.caller_id, batch_id, _AT_ONCE + len(spared))
                if each.state.job_id not in spared
            ]
            states = {state.job_id: state for state in with_visibility(tx, [each.state for each in jobs])}
            chosen = [each for each in jobs if not states[each.state.job_id].visible]
            spared.update(each.state.job_id for each in jobs if states[each.state.job_id].visible)
            fail_canceled(tx, chosen, reason, at, request_id or None)
            fetching.update(in_first_stage(chosen))
            return bool(jobs)

        while self.store.transaction(work):
            pass
        if self.cancels is not None and fetching:
            self.cancels.mark(fetching)
        # Only now: a place that is free must not be taken by a job that is canceled next.
        self.relay.send(self.store.transaction(lambda tx: admit(tx, [ctx.caller_id])))


def in_first_stage(jobs: Sequence[LockedJob]) -> dict[str, int]:
    """Return the attempts of the jobs that a worker of the first stage may have, by id."""
    return {each.state.job_id: each.state.attempt for each in jobs if each.state.status.value == FIRST}


def fail_canceled(
    tx: JobsTx, jobs: Sequence[LockedJob], reason: str, at: datetime, request_id: str | None
) -> None:
    """Fail locked jobs with the code `canceled` and close their documents to what they might publish."""
    if not jobs:
        return
    statuses = {each.state.job_id: each.state.status for each in jobs}
    tx.cancel_jobs(statuses, [_error(each, reason, at) for each in jobs], request_id)
    fences = {
        each.state.target.document_id: each.state.issued for each in jobs if each.state.issued is not None
    }
    if fences:
        tx.raise_fences(fences)
    if awaited := [each.state.job_id for each in jobs if each.state.has_dependents]:
        settle_dependents(tx, awaited)


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
