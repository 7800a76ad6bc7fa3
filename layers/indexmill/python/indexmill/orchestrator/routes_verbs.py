"""REST endpoints of the job actions."""

from __future__ import annotations

from fastapi import APIRouter

from indexmill.contracts.http_verbs import (
    BatchSummary,
    CancelRequest,
    JobDiff,
    ReplayRequest,
    RetryReport,
    RetryRequest,
)
from indexmill.contracts.job import Job
from indexmill.orchestrator.wiring import Api
from indexmill.platform.http.app import Caller, RequestId, json_route

_MAX_BODY = 256 * 1024


def routes(api: Api) -> APIRouter:
    """Return the router over `api`."""
    router = APIRouter(prefix="/orchestrator", route_class=json_route(_MAX_BODY), tags=["orchestrator"])

    @router.post("/jobs/{job_id}/cancel", summary="Stop a job")
    async def cancel(job_id: str, body: CancelRequest, ctx: Caller, request_id: RequestId) -> Job:
        """Fail the job with code `canceled`; 409 for one that ended or is published already."""
        job = api.cancel(ctx, job_id, body.reason)
        api.observability.emit("job_canceled", ctx, job_id=job_id, request_id=request_id, reason=body.reason)
        return job

    @router.post("/jobs/retry", summary="Retry failed jobs")
    async def retry_every(body: RetryRequest, ctx: Caller, request_id: RequestId) -> RetryReport:
        """Give the newest failed jobs that match another attempt, at most `limit` of them."""
        report = api.retry.every(ctx, body)
        for job_id in report.retried:
            api.observability.emit("job_retried", ctx, job_id=job_id, request_id=request_id)
        return report

    @router.post("/jobs/{job_id}/retry", status_code=202, summary="Retry a failed job")
    async def retry(job_id: str, ctx: Caller, request_id: RequestId) -> Job:
        """Give the job another attempt from the stage that failed; 409 for one that did not fail."""
        job = api.retry.one(ctx, job_id)
        api.observability.emit("job_retried", ctx, job_id=job_id, request_id=request_id)
        return job

    @router.post("/jobs/{job_id}/replay", status_code=202, summary="Do a job again as a new one")
    async def replay(job_id: str, body: ReplayRequest, ctx: Caller, request_id: RequestId) -> Job:
        """Start a job of the same URL, from the site or from the raw content that was fetched then."""
        job = api.replays.replay(ctx, job_id, body, request_id)
        api.observability.emit(
            "job_replayed", ctx, job_id=job.job_id, replay_of=job_id, request_id=request_id
        )
        return job

    @router.get("/jobs/{job_id}/diff", summary="Compare a replay with its original")
    async def diff(job_id: str, ctx: Caller) -> JobDiff:
        """Tell which parts of the two results differ, and why."""
        return api.replays.diff(ctx, job_id)

    @router.get("/batches/{batch_id}", summary="How a batch stands")
    async def batch(batch_id: str, ctx: Caller) -> BatchSummary:
        """Count the jobs that were submitted together."""
        return api.read.batch(ctx, batch_id)

    return router
