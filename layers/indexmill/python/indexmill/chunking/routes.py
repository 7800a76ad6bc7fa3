"""Chunking over HTTP."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from indexmill.chunking.chunk import ChunkDocuments
from indexmill.contracts.http_chunking import ChunkRequest, ChunkResponse
from indexmill.platform.http.app import Caller, json_route
from indexmill.platform.time.deadline import request_limit, within

_MAX_BODY = 4 * 1024 * 1024
_LIMIT_S = 10.0


def routes(chunk_documents: ChunkDocuments, integration_timeout_s: float) -> APIRouter:
    """Return the router over `chunk_documents`."""
    router = APIRouter(prefix="/chunking", route_class=json_route(_MAX_BODY), tags=["chunking"])
    limit_s = request_limit(_LIMIT_S, integration_timeout_s)

    @router.post("/chunk", summary="Split a text into chunks")
    async def chunk(body: ChunkRequest, _ctx: Caller) -> ChunkResponse:
        """Split one text; nobody is called back, whether or not `job_id` is given."""
        work = asyncio.to_thread(chunk_documents.one, body.text, body.title, body.settings)
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
            job_id=body.job_id,
        )

    return router
