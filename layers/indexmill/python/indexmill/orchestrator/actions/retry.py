"""Retry: another attempt for failed jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from indexmill.contracts.content import is_given
from indexmill.contracts.crawl import confined
from indexmill.contracts.errors import CONTENT_LOST, CallerError, ErrorCode
from indexmill.contracts.http_actions import RetryReport, RetryRequest, SkippedJob
from indexmill.contracts.identity import CallerContext, corpus_name, new_id
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Target
from indexmill.contracts.pipeline import BY_NAME, FIRST, ORDER, STAGES
from indexmill.orchestrator.admission.admit import admission_tier, admit, check_pending, take_starts
from indexmill.orchestrator.admission.dependencies import is_blocked
from indexmill.orchestrator.crawling.follow import page_digest
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.queries.jobs import is_job_id, read_job, unknown_job
from indexmill.orchestrator.stages.registry import renewed
from indexmill.orchestrator.store.actions import LockedJob
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.rows import Fetch, JobState, OutboxRow

_LOOKED_AT: Final = 1000
"""Jobs that one call looks at, at most."""


@dataclass(frozen=True, slots=True)
class RetryJobs:
    """The retry use cases: one job, or all that match a filter."""

    store: JobStore
    relay: Relay
    make_id: Callable[[], str] = new_id

    def one(self, ctx: CallerContext, job_id: str, request_id: str = "") -> Job:
        """Return the job, in flight again from the stage that failed, or pending while the quota is used up.

        Raises CallerError: not_found, insufficient_scope for what the job does, quota_exceeded for too many
        pending jobs, or invalid_transition when it did not fail or another job is in flight for its document.
        """
        if not is_job_id(job_id):
            raise unknown_job()
        job, messages = self._retry(ctx, job_id, request_id or None)
        self.relay.send(messages)
        return job

    def every(self, ctx: CallerContext, request: RetryRequest, request_id: str = "") -> RetryReport:
        """Retry the newest failed jobs that match; one that cannot be retried does not keep the rest back.

        Jobs that another attempt cannot help take no place of others: older ones are looked at instead.
        The oldest of them goes first: a dependency is older, and has to be retried before its dependents.
        """
        report = RetryReport(retried=[], skipped=[], more=False)
        chosen: list[Job] = []
        for job in self._newest(_filter(ctx, request)):
            if len(chosen) == request.limit or len(chosen) + len(report.skipped) == _LOOKED_AT:
                report.more = True
                break
            if job.retryable or request.include_permanent or request.code is not None:
                chosen.append(job)
            else:
                report.skipped.append(SkippedJob(job_id=job.job_id, reason="Another try cannot help."))
        rows: list[OutboxRow] = []
        for job in reversed(chosen):
            try:
                _, messages = self._retry(ctx, job.job_id, request_id or None)
            except CallerError as error:
                report.skipped.append(SkippedJob(job_id=job.job_id, reason=error.message))
            else:
                report.retried.append(job.job_id)
                rows.extend(messages)
        self.relay.send(rows)
        return report

    def _retry(self, ctx: CallerContext, job_id: str, request_id: str | None) -> tuple[Job, list[OutboxRow]]:
        caller_id, message_id = ctx.caller_id, self.make_id()

        def work(tx: JobsTx) -> tuple[Job, list[OutboxRow]]:
            locked = tx.lock_job(caller_id, job_id)
            if locked is None:
                raise unknown_job()
            ctx.require_values({"job_type": locked.job_type})
            state = locked.state
            if tx.has_message(job_id, message_id):
                # The first run of this call was committed and its answer lost.
                return read_job(tx, caller_id, job_id), []
            if state.status is not JobStatus.FAILED:
                raise _refused(f"Only a failed job can be retried; this one is {state.status.value}.")
            if locked.deleted:
                raise _refused("Its document was deleted.", "Submit it again.")
            usage, overall, pending = tx.usage(caller_id, admission_tier(ctx))
            check_pending(pending, 1, usage, tx.limits, overall, tx.pace())
            blocked = is_blocked(tx, job_id)
            if not locked.forced:
                _check_alone(tx, state.target)
            row = _first_message(tx, locked, message_id)
            if state.issued is not None:
                tx.raise_fences({state.target.document_id: state.issued})
            generation = state.generation if BY_NAME[row.stage].publishes else None
            # Before the job is in flight again, as in a submit, which locks its sites first too.
            url, fetches = state.target.url, row.stage == FIRST and locked.replay_of is None
            fetching = fetches and not blocked and not is_given(url)
            held = take_starts(tx, [Fetch(job_id, url)] if fetching else [])
            tx.restart_job(row, generation, request_id, blocked=blocked)
            if held:
                tx.hold_back(held)
            messages = admit(tx, [caller_id])
            return read_job(tx, caller_id, job_id), messages

        return self.store.transaction(work)

    def _newest(self, wanted: JobFilter) -> Iterator[Job]:
        """Yield all jobs that match, newest first."""
        while page := self.store.read(partial(_find, wanted=wanted)):
            yield from page
            wanted = replace(wanted, before=(page[-1].created_at, page[-1].job_id))


def _find(tx: JobsTx, wanted: JobFilter) -> list[Job]:
    return tx.find_jobs(wanted)


def _check_alone(tx: JobsTx, target: Target) -> None:
    """Refuse a retry while another job is in flight for the document; the unique index makes that safe."""
    for other in tx.jobs_in_flight([target.document_id]):
        if other.caller_id != target.caller_id:
            raise _refused("Another job is at work on this document.", "Try again when it has ended.")
        raise _refused(f"Job {other.job_id} is at work on this document.", "Wait for it, or cancel it first.")


def _first_message(tx: JobsTx, locked: LockedJob, message_id: str) -> OutboxRow:
    """Return the message of the stage with which the next attempt starts."""
    state = locked.state
    kept = tx.kept_payloads(state.job_id)
    # An older attempt's content must not replace a newer version of the document.
    outdated = locked.ended_at is not None and tx.published_since(state.target.document_id, locked.ended_at)
    if outdated and is_given(state.target.url):
        raise _refused("A newer version of this document was published.", "Submit its content again.")
    stage = stage_to_resume(locked.failed_stage or "", kept, locked.error, outdated=outdated)
    more: dict[str, Any] = {"stored": locked.stored} if is_given(state.target.url) else {}
    if state.kind is not None and stage not in kept:
        more |= _of_crawl(tx, state)
    return renewed(state, stage, kept.get(stage), (message_id, state.attempt + 1, state.generation), **more)


def _of_crawl(tx: JobsTx, state: JobState) -> dict[str, Any]:
    """Return what a first message has of its job's crawl, as long as that is kept."""
    crawl = tx.crawl(state.target.caller_id, state.crawl_id or "")
    if crawl is None:
        if state.kind == "sitemap":
            raise _refused("The rules for this sitemap's pages are not kept any more.", "Submit it again.")
        return {}
    page = page_digest(state.target.url)
    first = tx.depths(crawl.crawl_id, [page]).get(page) == 0
    return {
        "sitemap": crawl.plan.rules if state.kind == "sitemap" else None,
        "hosts": None if first else confined(crawl.plan.rules, crawl.hosts),
    }


def stage_to_resume(
    failed_stage: str, kept: Mapping[str, str], error: JobError | None, *, outdated: bool
) -> str:
    """Return the stage with which a failed job is resumed: the failed one while its payload is kept.

    `kept` are payloads by stage. With `outdated` a newer version of the document was published since the job
    ended: then it is fetched again. And so it is when the job's `error` says that its content is gone.
    """
    if outdated or (error is not None and error.code in CONTENT_LOST):
        return FIRST
    for stage in reversed(STAGES[: ORDER.get(failed_stage, 0) + 1]):
        if stage.name in kept:
            return stage.name
    return FIRST


def _refused(message: str, hint: str | None = None) -> CallerError:
    return CallerError(ErrorCode.INVALID_TRANSITION, message, hint=hint)


def _filter(ctx: CallerContext, request: RetryRequest) -> JobFilter:
    return JobFilter(
        caller_id=ctx.caller_id,
        corpus_name=corpus_name(request.corpus_name) if request.corpus_name is not None else None,
        status=JobStatus.FAILED.value,
        failed_stage=request.failed_stage,
        code=request.code,
        batch_id=request.batch_id,
        limit=request.limit + 1,
    )
