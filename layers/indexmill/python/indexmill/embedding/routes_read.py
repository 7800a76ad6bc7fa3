"""Search over HTTP: the read side, deployed apart from the write side."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter

from indexmill.contracts.http_search import SearchRequest, SearchResponse
from indexmill.embedding.search import SearchCorpus
from indexmill.platform.http.app import Caller, json_route
from indexmill.platform.observability import Observability
from indexmill.platform.time.deadline import within

_MAX_BODY = 256 * 1024


def routes(search_corpus: SearchCorpus, observability: Observability, limit_s: float) -> APIRouter:
    """Return the router over `search_corpus`; `limit_s` is the longest search."""
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_BODY), tags=["search"])

    @router.post("/search", summary="Search a corpus")
    async def search(body: SearchRequest, ctx: Caller) -> SearchResponse:
        """Return the best chunks for `query` (text) or `query_embedding` (a vector)."""
        work = asyncio.to_thread(search_corpus, ctx.caller_id, body, timeout_s=limit_s / 2)
        found = await within(
            limit_s, work, message="The search took too long.", hint="Try again with a smaller top_k."
        )
        observability.seconds("embedding_request_duration", found.query_ms / 1000, operation="read")
        observability.emit(
            "corpus_searched", ctx, corpus_name=body.corpus_name or "default", results=len(found.results)
        )
        return found

    return router
