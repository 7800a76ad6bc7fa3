"""The Orchestrator's verbs on twins, for their tests."""

from __future__ import annotations

from typing import Any

from indexmill.contracts.http_jobs import SubmitRequest, SubmitResponse
from indexmill.contracts.http_verbs import ReplayRequest, RetryReport, RetryRequest
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import Job
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports import Original
from indexmill.orchestrator.queries.jobs import ReadJobs
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.testing.progress import InMemoryProgress
from tests.support.jobs import CALLER, Pipeline, stored_job


class Mill(Pipeline):
    """The pipeline with its callers' verbs."""

    def __init__(self, store: JobStore | None = None) -> None:
        """Everything reachable, nothing submitted."""
        super().__init__(store)
        self.accept = SubmitJobs(self.store, self.relay)
        self.cancel_job = CancelJob(self.store, self.relay, self.clock)
        self.retry_jobs = RetryJobs(self.store, self.relay)
        self.replays = ReplayJobs(self.store, self.relay)
        self.read = ReadJobs(self.store, InMemoryProgress(self.clock))

    def send(self, key: str | None = None, ctx: CallerContext = CALLER, **request: Any) -> SubmitResponse:
        """Submit a request as it comes over HTTP."""
        return self.accept(ctx, SubmitRequest.model_validate(request), "req-1", key)

    def job(self, job_id: str, ctx: CallerContext = CALLER) -> Job:
        """Return a job."""
        job = stored_job(self.store, ctx.caller_id, job_id)
        assert job is not None
        return job

    def original(self, job_id: str) -> Original:
        """Return a job with what a replay needs."""
        found = self.store.read(lambda tx: tx.original(CALLER.caller_id, job_id))
        assert found is not None
        return found

    def cancel(self, job_id: str, ctx: CallerContext = CALLER) -> Job:
        """Cancel a job."""
        return self.cancel_job(ctx, job_id, "not wanted")

    def retry_all(self, **request: Any) -> RetryReport:
        """Retry what matches."""
        return self.retry_jobs.every(CALLER, RetryRequest.model_validate(request))

    def replay(self, job_id: str, **request: Any) -> Job:
        """Replay a job."""
        return self.replays.replay(CALLER, job_id, ReplayRequest.model_validate(request), "req-2")
