"""Embedding over HTTP: the write side."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from indexmill.contracts.http_embedding import EmbedRequest, EmbedResponse, EnqueueRequest, EnqueueResponse
from indexmill.embedding.wiring import WriteApi
from indexmill.platform.http.app import Caller, RequestId, json_route
from indexmill.platform.time.deadline import within

_MAX_BODY = 1024 * 1024


def routes(api: WriteApi, limit_s: float) -> APIRouter:
    """Return the router over `api`; `limit_s` is the longest synchronous embed."""
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_BODY), tags=["embedding"])

    @router.post("/embed", summary="Embed a few texts")
    async def embed(body: EmbedRequest, ctx: Caller) -> EmbedResponse:
        """Embed while the caller waits; with `url` the texts become that document's chunks."""
        work = asyncio.to_thread(api.embed, ctx.caller_id, body, timeout_s=limit_s - 1)
        return await within(
            limit_s,
            work,
            message="OpenAI round-trip exceeds limit",
            hint="Use POST /embedding/enqueue, or POST /orchestrator/jobs for a URL.",
        )

    @router.post("/enqueue", status_code=202, summary="Queue a document's chunks for embedding")
    async def enqueue(body: EnqueueRequest, ctx: Caller, request_id: RequestId) -> EnqueueResponse:
        """Queue the chunks; an internal caller's `job_id` is told of the result, without one nobody is."""
        return api.enqueue(ctx, body, request_id)

    return router
