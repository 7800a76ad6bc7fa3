"""Give failed jobs another attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_verbs import RetryReport, RetryRequest, SkippedJob
from indexmill.contracts.identity import CallerContext, corpus_name
from indexmill.contracts.job import Job, JobStatus
from indexmill.orchestrator.ports import JobFilter, JobStore, OutboxRow
from indexmill.orchestrator.read import is_job_id
from indexmill.orchestrator.relay import Sender
from indexmill.orchestrator.verb_ports import JobVerbs
from indexmill.orchestrator.verb_rules import unknown_job
from indexmill.platform.ids import new_id

_LOOKED_AT: Final = 1000
"""Jobs that one call looks at, at most."""


@dataclass(frozen=True, slots=True)
class RetryJobs:
    """The retry use cases: one job, or all that match a filter."""

    store: JobStore
    verbs: JobVerbs
    relay: Sender
    make_id: Callable[[], str] = new_id

    def one(self, ctx: CallerContext, job_id: str) -> Job:
        """Return the job, pending or at work again from the stage that failed.

        Raises CallerError: not_found, or invalid_transition when it did not fail or another job is at work on
        its document.
        """
        if not is_job_id(job_id):
            raise unknown_job()
        outcome = self.verbs.retry(ctx.caller_id, job_id, self.make_id())
        self.relay.send(outcome.outbox)
        return outcome.job

    def every(self, ctx: CallerContext, request: RetryRequest) -> RetryReport:
        """Retry the newest failed jobs that match; one that cannot be retried does not keep the rest back.

        What another try cannot help takes no place of others: older ones are looked for in its stead.
        The oldest of them goes first: what a job depends on is older, and has to be retried before it.
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
                outcome = self.verbs.retry(ctx.caller_id, job.job_id, self.make_id())
            except CallerError as error:
                report.skipped.append(SkippedJob(job_id=job.job_id, reason=error.message))
            else:
                report.retried.append(job.job_id)
                rows.extend(outcome.outbox)
        self.relay.send(rows)
        return report

    def _newest(self, wanted: JobFilter) -> Iterator[Job]:
        """Yield all jobs that match, newest first."""
        while page := self.store.find(wanted):
            yield from page
            wanted = replace(wanted, before=(page[-1].created_at, page[-1].job_id))


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
