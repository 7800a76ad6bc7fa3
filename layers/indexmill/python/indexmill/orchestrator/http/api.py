"""REST endpoints of jobs: submit, list, read, and the actions of their callers."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Depends, Header, Query, Response
from pydantic import BaseModel, BeforeValidator

from indexmill.contracts.content import UploadGrant, UploadRequest
from indexmill.contracts.errors import TransientError
from indexmill.contracts.http_actions import (
    BatchSummary,
    CallerLimits,
    CancelRequest,
    JobDiff,
    JobHistory,
    ReplayRequest,
    RetryReport,
    RetryRequest,
    Tried,
)
from indexmill.contracts.http_deletion import SignedReport
from indexmill.contracts.identity import CallerContext, CorpusName, UrlText
from indexmill.contracts.identity import corpus_name as valid_corpus_name
from indexmill.contracts.job import (
    Health,
    Job,
    JobCounts,
    JobList,
    JobStatus,
    StageCompletePayload,
    StageCompleteResponse,
    StreamToken,
    SubmitRequest,
    SubmitResponse,
)
from indexmill.contracts.pages import MAX_CURSOR_LENGTH, page_size
from indexmill.contracts.pipeline import StageName
from indexmill.orchestrator.actions.cancel import CancelBatch, CancelJob
from indexmill.orchestrator.actions.delete import DeleteDocuments
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.queries.jobs import ReadHistory, ReadJobs, poll_after_s
from indexmill.orchestrator.queries.limits import ReadHealth, ShowLimits
from indexmill.orchestrator.queries.stream import GrantStream
from indexmill.orchestrator.results.complete import CompleteStage
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.submission.dry_run import TryOut
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.submission.uploads import GrantUpload
from indexmill.platform.http.app import BaseUrl, Caller, RequestId, tagged
from indexmill.platform.http.guard import json_route, scoped
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

_PREFIX = "/orchestrator"
COMPLETE = f"{_PREFIX}/jobs/{{job_id}}/complete"
"""Path of the stages' reports."""
HEALTH = f"{_PREFIX}/health"
ADD_WORK = [
    ("POST", f"{_PREFIX}/jobs{path}") for path in ("", "/retry", "/{job_id}/retry", "/{job_id}/replay")
]
"""Methods and paths of the requests that start jobs."""
_READ, _WRITE = scoped("orchestrator:read"), scoped("orchestrator:write")
_MAX_BODY = 256 * 1024
_TRIED: dict[int | str, dict[str, Any]] = {200: {"model": Tried, "description": "It was a dry run."}}
_UNCHANGED: dict[int | str, dict[str, Any]] = {304: {"description": "It is as `If-None-Match` says."}}

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_LOST_PLUS: Final = re.compile(r"[T ][0-9:.]+ [0-9]{2}(:?[0-9]{2})?$")
"""The end of a moment whose offset was sent with a bare plus."""
_Receipt = Literal["true", "false"]
"""Strict: FastAPI would take "on" and "1" for true."""
_IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key")]


def _dated(text: str) -> str:
    """Refuse a number, which pydantic would take for seconds since 1970."""
    if _DATE.match(text) is None:
        raise ValueError("Send a moment in ISO 8601, as 2026-03-01T12:00:00Z.")
    if _LOST_PLUS.search(text):
        raise ValueError("Send the + of the offset as %2B: in a query it is a space.")
    return text


_Moment = Annotated[datetime, BeforeValidator(_dated)]


@dataclass(slots=True)
class RecordAlias:
    """Makes an alias durable that an authorizer deduced; the sweeper copies it to where authorizers read."""

    store: JobStore
    _recorded: set[str] = field(default_factory=set)

    def __call__(self, ctx: CallerContext) -> None:
        """Record the caller's alias when this process has not. Raises TransientError."""
        if not ctx.alias or ctx.alias in self._recorded:
            return
        self.store.transaction(lambda tx: tx.add_alias(ctx.alias, ctx.caller_id))
        self._recorded.add(ctx.alias)


@dataclass(frozen=True, slots=True)
class Api:
    """Use cases behind the routes."""

    submit: SubmitJobs
    try_out: TryOut
    read: ReadJobs
    grant_upload: GrantUpload
    health: ReadHealth
    history: ReadHistory
    complete: CompleteStage
    grant_stream: GrantStream
    cancel: CancelJob
    cancel_batch: CancelBatch
    retry: RetryJobs
    replays: ReplayJobs
    delete: DeleteDocuments
    limits: ShowLimits
    record_alias: RecordAlias
    clock: Clock
    observability: Observability


def _wanted(
    ctx: Caller,
    corpus_name: Annotated[CorpusName | None, Query()] = None,
    status: JobStatus | None = None,
    failed_stage: StageName | None = None,
    url: Annotated[UrlText | None, Query()] = None,
    code: Annotated[str | None, Query(max_length=100)] = None,
    batch_id: Annotated[str | None, Query(max_length=100)] = None,
    created_after: Annotated[_Moment | None, Query()] = None,
    created_before: Annotated[_Moment | None, Query()] = None,
    limit: str = "50",
) -> JobFilter:
    """Gather the list's filters."""
    return JobFilter(
        caller_id=ctx.caller_id,
        corpus_name=valid_corpus_name(corpus_name, "query.corpus_name") if corpus_name is not None else None,
        status=status.value if status else None,
        failed_stage=failed_stage,
        url=url,
        code=code,
        batch_id=batch_id,
        created_after=created_after,
        created_before=created_before,
        limit=page_size(limit),
    )


def _with_aliases(api: Api) -> Any:
    """Return the dependency that records a caller's alias before its first request is handled."""

    async def record(ctx: Caller) -> None:
        # Without the database the request itself fails, or needs none.
        with suppress(TransientError):
            api.record_alias(ctx)

    return Depends(record)


async def _tried(
    api: Api, ctx: CallerContext, body: SubmitRequest, request_id: str, key: str | None
) -> Response:
    found: BaseModel
    if body.delete is not None:
        found = api.delete.preview(ctx, body)
    else:
        found = await asyncio.to_thread(api.try_out, ctx, body, request_id, key)
    return Response(found.model_dump_json(), media_type="application/json")


def routes(api: Api) -> APIRouter:
    """Return the router over `api`."""
    router = APIRouter(
        prefix=_PREFIX,
        route_class=json_route(_MAX_BODY),
        tags=["orchestrator"],
        dependencies=[_with_aliases(api)],
    )

    @router.post(
        "/jobs",
        status_code=202,
        summary="Submit URLs",
        response_model=SubmitResponse,
        responses=_TRIED,
        openapi_extra=_WRITE,
    )
    async def submit(
        body: SubmitRequest, ctx: Caller, request_id: RequestId, idempotency_key: _IdempotencyKey = None
    ) -> SubmitResponse | Response:
        """Accept one `url`, up to 100 `urls`, or the `content` of a document without a URL; or delete one.

        Under one `Idempotency-Key` that is done once in 24 hours. With `dry_run` nothing is accepted.
        """
        if body.dry_run:
            return await _tried(api, ctx, body, request_id, idempotency_key)
        return (api.submit if body.delete is None else api.delete)(ctx, body, request_id, idempotency_key)

    @router.get("/jobs", summary="List the caller's jobs, newest first", openapi_extra=_READ)
    @router.get("/jobs/", include_in_schema=False, openapi_extra=_READ)
    async def list_jobs(
        wanted: Annotated[JobFilter, Depends(_wanted)],
        cursor: Annotated[str | None, Query(max_length=MAX_CURSOR_LENGTH)] = None,
        receipt: _Receipt = "false",
    ) -> JobList:
        """Return one page of at most `limit` (1 to 200, default 50) jobs.

        With `receipt=true` also what all jobs that match used, for example those of one `corpus_name`.
        """
        return api.read.list(wanted, cursor, receipt=receipt == "true")

    @router.get("/jobs/summary", summary="How many jobs the caller has, by status", openapi_extra=_READ)
    async def count_jobs(ctx: Caller) -> JobCounts:
        """Count them by status and, of the failed ones, by stage; up to 100,000 of each status."""
        return api.read.counts(ctx)

    _add_job_resources(router, api)
    return router


def _add_job_resources(router: APIRouter, api: Api) -> None:
    """Add the routes of one job, its history, stream token and stage results, of uploads and limits."""

    @router.get(
        "/jobs/{job_id}", summary="One job", response_model=Job, responses=_UNCHANGED, openapi_extra=_READ
    )
    async def get_job(
        job_id: str,
        ctx: Caller,
        receipt: _Receipt = "false",
        if_none_match: Annotated[str | None, Header(alias="If-None-Match")] = None,
    ) -> Response:
        """Return the job; 404 for an unknown one and for somebody else's alike.

        `Retry-After` says when looking again makes sense, and is missing at the end; with `If-None-Match` a
        job that did not change is 304. With `receipt=true` also what it used.
        """
        job = api.read.get(ctx, job_id, receipt=receipt == "true")
        pause = poll_after_s(job, api.clock.now())
        headers = {} if pause is None else {"Retry-After": str(pause)}
        return tagged(job.model_dump_json().encode(), if_none_match, headers)

    @router.get("/limits", summary="The caller's limits and their use", openapi_extra=_READ)
    async def limits(ctx: Caller) -> CallerLimits:
        """Return the limits of requests to each service, and the quotas of jobs."""
        return api.limits(ctx)

    @router.post("/uploads", summary="Let a document be uploaded", openapi_extra=_WRITE)
    async def upload(body: UploadRequest, ctx: Caller) -> UploadGrant:
        """Return a `url` for one PUT of up to 50 MiB, and the `upload_id` for the `content` of a submit."""
        return api.grant_upload(ctx, body)

    @router.post("/jobs/{job_id}/stream-token", summary="Let a browser follow one job", openapi_extra=_READ)
    async def stream_token(job_id: str, ctx: Caller, base_url: BaseUrl) -> StreamToken:
        """Return a `url` for `new EventSource(url)`; it is good for an hour, and for this job only."""
        return api.grant_stream(ctx, job_id, base_url)

    @router.get("/jobs/{job_id}/history", summary="What happened to a job", openapi_extra=_READ)
    async def get_history(job_id: str, ctx: Caller) -> JobHistory:
        """Return every transition, and whether the chain of their hashes is intact."""
        return api.history(ctx, job_id)

    @router.get("/jobs/{job_id}/report", summary="What a deletion removed, signed", openapi_extra=_READ)
    async def report(job_id: str, ctx: Caller) -> SignedReport:
        """Return the report of a deletion that has ended, as a DSSE envelope; 404 before that."""
        return SignedReport.model_validate(api.delete.report(ctx, job_id))

    @router.post(
        COMPLETE.removeprefix(_PREFIX), summary="A stage's report (internal callers)", openapi_extra=_WRITE
    )
    async def stage_complete(job_id: str, body: StageCompletePayload, ctx: Caller) -> StageCompleteResponse:
        """Apply the report; a late or repeated one is 200 `already_advanced`."""
        return api.complete(ctx, job_id, body)


def open_routes(api: Api) -> APIRouter:
    """Return the router of what needs no key."""
    router = APIRouter(prefix=_PREFIX, route_class=json_route(_MAX_BODY), tags=["orchestrator"])

    @router.get(
        HEALTH.removeprefix(_PREFIX),
        summary="Whether the service works (no key)",
        openapi_extra={"security": []},
    )
    async def health(response: Response) -> Health:
        """Return version and stages; 503 while no job can be submitted. It is at most ten seconds old."""
        response.headers["Cache-Control"] = "public, max-age=10"
        return api.health()

    return router


def action_routes(api: Api) -> APIRouter:
    """Return the router of job actions (cancel, retry, replay, diff) and batches over `api`."""
    router = APIRouter(
        prefix=_PREFIX,
        route_class=json_route(_MAX_BODY),
        tags=["orchestrator"],
        dependencies=[_with_aliases(api)],
    )

    @router.post("/jobs/{job_id}/cancel", summary="Stop a job", openapi_extra=_WRITE)
    async def cancel(job_id: str, body: CancelRequest, ctx: Caller, request_id: RequestId) -> Job:
        """Fail the job with code `canceled`; 409 for one that ended or is published already."""
        return api.cancel(ctx, job_id, body.reason, request_id)

    @router.post("/jobs/retry", summary="Retry failed jobs", openapi_extra=_WRITE)
    async def retry_every(body: RetryRequest, ctx: Caller, request_id: RequestId) -> RetryReport:
        """Give the newest failed jobs that match another attempt, at most `limit` of them."""
        return api.retry.every(ctx, body, request_id)

    @router.post("/jobs/{job_id}/retry", status_code=202, summary="Retry a failed job", openapi_extra=_WRITE)
    async def retry(job_id: str, ctx: Caller, request_id: RequestId) -> Job:
        """Give the job another attempt from the stage that failed; 409 for one that did not fail."""
        return api.retry.one(ctx, job_id, request_id)

    @router.post(
        "/jobs/{job_id}/replay", status_code=202, summary="Do a job again as a new one", openapi_extra=_WRITE
    )
    async def replay(
        job_id: str, ctx: Caller, request_id: RequestId, body: ReplayRequest | None = None
    ) -> Job:
        """Start a job of the same URL, from the site or from the raw content that was fetched then."""
        return api.replays.replay(ctx, job_id, body or ReplayRequest(), request_id)

    @router.get("/jobs/{job_id}/diff", summary="Compare a replay with its original", openapi_extra=_READ)
    async def diff(job_id: str, ctx: Caller) -> JobDiff:
        """Tell which parts of the two results differ, and why."""
        return api.replays.diff(ctx, job_id)

    @router.get("/batches/{batch_id}", summary="How a batch stands", openapi_extra=_READ)
    async def batch(batch_id: str, ctx: Caller, receipt: _Receipt = "false") -> BatchSummary:
        """Count the jobs that were submitted together; with `receipt=true` also what they used."""
        return api.read.batch(ctx, batch_id, receipt=receipt == "true")

    @router.post("/batches/{batch_id}/cancel", summary="Stop a batch", openapi_extra=_WRITE)
    async def cancel_batch(
        batch_id: str, body: CancelRequest, ctx: Caller, request_id: RequestId
    ) -> BatchSummary:
        """Cancel those of its jobs that have not ended; a crawl gets no more."""
        api.cancel_batch(ctx, batch_id, body.reason, request_id)
        return api.read.batch(ctx, batch_id)

    return router
