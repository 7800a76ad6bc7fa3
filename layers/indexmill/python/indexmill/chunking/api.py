"""REST endpoints of Chunking."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from fastapi import APIRouter

from indexmill.chunking.enqueue import EnqueueChunk
from indexmill.chunking.worker import ChunkDocuments
from indexmill.contracts.http_chunking import (
    ChunkEnqueueRequest,
    ChunkEnqueueResponse,
    ChunkRequest,
    ChunkResponse,
)
from indexmill.contracts.identity import hidden_characters
from indexmill.platform.http.app import Caller, RequestId
from indexmill.platform.http.guard import json_route, scoped
from indexmill.platform.time import within

_MAX_BODY = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChunkingApi:
    """Use cases behind the routes."""

    documents: ChunkDocuments
    enqueue: EnqueueChunk


def routes(api: ChunkingApi, limit_s: float) -> APIRouter:
    """Return the router over `api`; `limit_s` is the longest synchronous split."""
    router = APIRouter(prefix="/chunking", route_class=json_route(_MAX_BODY), tags=["chunking"])

    @router.post("/chunk", summary="Split a text into chunks", openapi_extra=scoped("chunking:write"))
    async def chunk(body: ChunkRequest, _ctx: Caller) -> ChunkResponse:
        """Split one text; nobody is called back, whether or not `job_id` is given."""
        work = asyncio.to_thread(api.documents.one, body.text, body.title, body.settings)
        chunks = await within(
            limit_s,
            work,
            message="Document pathologically large",
            hint="Use POST /orchestrator/jobs, which has no such limit.",
        )
        return ChunkResponse(
            chunks=chunks,
            chunk_count=len(chunks),
            tokens=sum(chunk.tokens for chunk in chunks),
            settings=body.settings,
            hidden_characters=hidden_characters(body.text),
            job_id=body.job_id,
        )

    @router.post(
        "/enqueue",
        status_code=202,
        summary="Queue a text for chunking",
        openapi_extra=scoped("chunking:write"),
    )
    async def enqueue(body: ChunkEnqueueRequest, ctx: Caller, request_id: RequestId) -> ChunkEnqueueResponse:
        """Queue a text; an internal caller's `job_id` gets the result, else the object named here does."""
        return api.enqueue(ctx, body, request_id)

    return router
