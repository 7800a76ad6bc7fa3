"""REST endpoints of Embedding; reads and writes are deployed as two functions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Response

from indexmill.contracts.http_corpora import (
    Corpus,
    CorpusGrants,
    CorpusList,
    CorpusReport,
    GrantRequest,
    RenameRequest,
    VerifyRequest,
)
from indexmill.contracts.http_documents import ChunkPage, DocumentItem, DocumentList
from indexmill.contracts.http_embedding import EmbedRequest, EmbedResponse, EnqueueRequest, EnqueueResponse
from indexmill.contracts.http_search import SearchRequest, SearchResponse
from indexmill.contracts.identity import DEFAULT_CORPUS, UrlText
from indexmill.contracts.pages import MAX_CURSOR_LENGTH, page_size
from indexmill.embedding.browse import DocumentFilter
from indexmill.platform.http.app import Caller, RequestId
from indexmill.platform.http.guard import json_route, scoped
from indexmill.platform.observability import Observability
from indexmill.platform.time import SystemClock, within

if TYPE_CHECKING:
    from indexmill.embedding.browse import BrowseCorpus, Content
    from indexmill.embedding.corpora import ChangeCorpora, ReadCorpora
    from indexmill.embedding.embed_texts import EmbedTexts
    from indexmill.embedding.enqueue import EnqueueEmbed
    from indexmill.embedding.search import SearchCorpus
    from indexmill.embedding.verify import VerifyCorpus

_READ, _WRITE = scoped("embedding:read"), scoped("embedding:write")
_MAX_BODY: Final = 1024 * 1024
_MAX_SEARCH_BODY: Final = 256 * 1024
_Cursor = Annotated[str | None, Query(max_length=MAX_CURSOR_LENGTH)]
_Place = Annotated[str | None, Query(max_length=4_000)]
"""A cursor with a URL in it."""
_Offset = Annotated[str, Query(pattern="^[0-9]{1,9}$")]
_MARKDOWN: Final = "text/markdown; charset=utf-8"
_TEXT: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "Markdown.", "content": {"text/markdown": {"schema": {"type": "string"}}}}
}
_LATER_S: Final = 0.25
"""Seconds by which the model's time limit is later than the answer. The request after it waits for them."""


@dataclass(frozen=True, slots=True)
class WriteApi:
    """Use cases behind the write routes."""

    embed: EmbedTexts
    enqueue: EnqueueEmbed


def write_routes(api: WriteApi, limit_s: float) -> APIRouter:
    """Return the router over `api`; `limit_s` is the longest synchronous embed."""
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_BODY), tags=["embedding"])

    @router.post("/embed", summary="Embed a few texts", openapi_extra=_WRITE)
    async def embed(body: EmbedRequest, ctx: Caller) -> EmbedResponse:
        """Embed while the caller waits; with `url` the texts become that document's chunks."""
        # Its own limit is hardly met: the caller's answer is the one for a request that takes too long.
        work = asyncio.to_thread(api.embed, ctx, body, timeout_s=limit_s + _LATER_S)
        return await within(
            limit_s,
            work,
            message="OpenAI round-trip exceeds limit",
            hint="Use POST /embedding/enqueue, or POST /orchestrator/jobs for a URL.",
        )

    @router.post(
        "/enqueue",
        status_code=202,
        summary="Queue a document's chunks for embedding",
        openapi_extra=_WRITE,
    )
    async def enqueue(body: EnqueueRequest, ctx: Caller, request_id: RequestId) -> EnqueueResponse:
        """Queue the chunks; an internal caller's `job_id` is told of the result, without one nobody is."""
        return api.enqueue(ctx, body, request_id)

    return router


def read_routes(search_corpus: SearchCorpus, observability: Observability, limit_s: float) -> APIRouter:
    """Return the router over `search_corpus`; `limit_s` is the longest search."""
    clock = SystemClock()
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_SEARCH_BODY), tags=["search"])

    @router.post("/search", summary="Search a corpus", openapi_extra=_READ)
    async def search(body: SearchRequest, ctx: Caller) -> SearchResponse:
        """Return the best chunks for `query` (text) or `query_embedding` (a vector)."""
        began = clock.monotonic()
        work = asyncio.to_thread(search_corpus, ctx.caller_id, body)
        try:
            found = await within(
                limit_s, work, message="The search took too long.", hint="Try again with a smaller top_k."
            )
        finally:
            # A search that failed or took too long has a duration as well.
            took_s = clock.monotonic() - began
            observability.seconds("embedding_request_duration", took_s, operation="read")
        observability.emit(
            "corpus_searched",
            ctx,
            corpus_name=",".join(body.corpora or [body.corpus_name or DEFAULT_CORPUS]),
            mode=body.consults.value,
            ms=found.query_ms,
            results=len(found.results),
            # As a number, of which a saved query makes a rate. Behind the last page there is no hit either.
            without_hit=int(not found.results and body.offset == 0),
            degraded=found.degraded,
        )
        return found

    return router


def corpora_routes(read: ReadCorpora, verify: VerifyCorpus) -> APIRouter:
    """Return the router of what is read of corpora."""
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_SEARCH_BODY), tags=["corpora"])

    @router.get("/corpora", summary="List the corpora that the caller may read", openapi_extra=_READ)
    async def list_corpora(
        ctx: Caller,
        limit: str = "50",
        cursor: _Cursor = None,
    ) -> CorpusList:
        """Return one page of at most `limit` (1 to 200, default 50) corpora, by name."""
        return read.list(ctx, page_size(limit), cursor)

    @router.get("/corpora/{name}", summary="Figures of a corpus", openapi_extra=_READ)
    async def get_corpus(name: str, ctx: Caller) -> Corpus:
        """Return documents, chunks, bytes, models and age of a corpus, by its name or id; 404 for no such."""
        return read.get(ctx, name)

    @router.post("/corpora/{name}/verify", summary="Verify a corpus", openapi_extra=_READ)
    async def verify_corpus(name: str, ctx: Caller, body: VerifyRequest | None = None) -> CorpusReport:
        """Compare search with the catalogue, and figures with their sums; wrong ones are counted again."""
        return await asyncio.to_thread(verify, ctx, name, body.cursor if body else None)

    return router


def document_routes(browse: BrowseCorpus, observability: Observability) -> APIRouter:
    """Return the router of documents over `browse`."""
    path = "/embedding/corpora/{name}/documents"
    router = APIRouter(prefix=path, route_class=json_route(_MAX_BODY), tags=["documents"])

    @router.get("", summary="List the documents of a corpus, in the order of their URLs", openapi_extra=_READ)
    async def list_documents(
        name: str,
        ctx: Caller,
        limit: str = "50",
        cursor: _Place = None,
        url_prefix: Annotated[UrlText | None, Query()] = None,
        stale: Literal["true", "false"] | None = None,
        content_type: Annotated[str | None, Query(max_length=200)] = None,
    ) -> DocumentList:
        """Return one page of at most `limit` (1 to 200, default 50) documents that search sees.

        With `url_prefix` those whose URLs begin so, with `stale=true` those whose page is gone, with
        `content_type` those of a media type, as application/pdf.
        """
        gone = None if stale is None else stale == "true"
        wanted = DocumentFilter(page_size(limit), gone, content_type)
        return browse.list(ctx, name, wanted, cursor, url_prefix or "")

    @router.get("/{document_id}", summary="One document", openapi_extra=_READ)
    async def get_document(name: str, document_id: str, ctx: Caller) -> DocumentItem:
        """Return its published version; 404 for an unknown document and for another caller's alike."""
        return browse.one(ctx, name, document_id)

    @router.get("/{document_id}/chunks", summary="The chunks of a document, in order", openapi_extra=_READ)
    async def list_chunks(
        name: str, document_id: str, ctx: Caller, limit: str = "50", cursor: _Cursor = None
    ) -> ChunkPage:
        """Return one page of at most `limit` chunks; 409 when the document was published again meanwhile."""
        return browse.chunks(ctx, name, document_id, page_size(limit), cursor)

    @router.get(
        "/{document_id}/content",
        summary="The text of a document",
        response_class=Response,
        responses=_TEXT,
        openapi_extra=_READ,
    )
    async def get_content(
        name: str, document_id: str, ctx: Caller, start: _Offset = "0", end: _Offset | None = None
    ) -> Response:
        """Return the text that the chunks were cut from, which their offsets count characters of.

        With `start` and `end` a part of it. 410 for a version whose text is not kept.
        """
        last = None if end is None else int(end)
        found = browse.content(ctx, name, document_id, int(start), last)
        observability.emit(
            "document_read", ctx, corpus_name=name, document_id=document_id, characters=len(found.text)
        )
        return _file(found, f"{document_id[:16]}.md")

    return router


def corpus_action_routes(change: ChangeCorpora) -> APIRouter:
    """Return the router of what an owner does to a corpus over `change`."""
    router = APIRouter(prefix="/embedding", route_class=json_route(_MAX_SEARCH_BODY), tags=["corpora"])

    @router.post("/corpora/{name}/rename", summary="Rename a corpus", openapi_extra=_WRITE)
    async def rename(name: str, body: RenameRequest, ctx: Caller, request_id: RequestId) -> Corpus:
        """Give the corpus another name; it keeps documents and id, and jobs in flight stay with it."""
        return change.rename(ctx, name, body.new_name, request_id)

    @router.get("/corpora/{name}/grants", summary="Who else may read a corpus", openapi_extra=_READ)
    async def grants(name: str, ctx: Caller) -> CorpusGrants:
        """Return the callers that its owner shares the corpus with."""
        return change.grants(ctx, name)

    @router.post("/corpora/{name}/share", summary="Let a caller read a corpus", openapi_extra=_WRITE)
    async def share(name: str, body: GrantRequest, ctx: Caller, request_id: RequestId) -> CorpusGrants:
        """Let another caller search, list and read it by its `corpus_id`; any id is accepted."""
        return change.share(ctx, name, body.caller_id, request_id)

    @router.post("/corpora/{name}/unshare", summary="End a grant", openapi_extra=_WRITE)
    async def unshare(name: str, body: GrantRequest, ctx: Caller, request_id: RequestId) -> CorpusGrants:
        """Let the caller read it no more, from its next request on."""
        return change.unshare(ctx, name, body.caller_id, request_id)

    return router


def _file(content: Content, name: str) -> Response:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": "private, no-cache",
        "ETag": f'"{content.sha256}"',
        "X-Text-Length": str(content.length),
    }
    return Response(content.text, media_type=_MARKDOWN, headers=headers)
