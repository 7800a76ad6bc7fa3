"""One message of every kind and outcome, with every field set in some of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

from pydantic import BaseModel

from indexmill.contracts.content import BlobRef, Chunk, Document, PageFacts, SourceText
from indexmill.contracts.cost import Spent
from indexmill.contracts.crawl import CrawlRules, Sitemap
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.messages import (
    Chunked,
    ChunkTask,
    Embedded,
    EmbedTask,
    Retrying,
    ScrapeTask,
    StageFailure,
    StageResult,
    Stored,
    Target,
    stage_result,
)
from indexmill.contracts.pipeline import BY_NAME

_ENVELOPE: Final[dict[str, Any]] = {"message_id": "m-1", "job_id": "j-1", "attempt": 2, "request_id": "r-1"}
_SPENT: Final = Spent(gb_s=0.01, sqs_requests=0.2, chunks=3)
_REPORT: Final[dict[str, Any]] = {
    **_ENVELOPE,
    "tries": 2,
    "worker": "w-1",
    "elapsed_ms": 12,
    "spent": _SPENT,
}
_REF: Final = BlobRef(key="text/aa/bb", size=70_000, sha256="b" * 64)
_URL: Final = "https://site.example/a"
_AT: Final = datetime(2026, 3, 14, 12, tzinfo=UTC)
_CHUNK: Final = Chunk(ordinal=0, text="Some words.", context="Title", start=9, end=20, tokens=2)
_FAILURE: Final = StageFailure(code="max_retries_exceeded", message="It failed.", cause="http_503", tries=4)
_TARGET: Final = Target(caller_id="c-1", corpus_name="docs", corpus_key="k-1", document_id="d-1", url=_URL)
_DOCUMENT: Final[dict[str, Any]] = {
    "url": _URL,
    "final_url": f"{_URL}/",
    "title": "Title",
    "content_type": "text/html",
    "charset": "utf-8",
    "language": "en",
    "raw_ref": _REF,
    "raw_stored_at": _AT,
    "content_sha256": "c" * 64,
    "extractor": "html-1",
    "etag": '"v1"',
    "last_modified": "Sat, 14 Mar 2026 12:00:00 GMT",
    "fetched_at": _AT,
    "published_at": _AT,
    "page_starts": [0, 12],
}
_PAGE: Final = PageFacts(
    content_type="text/html", language="en", published_at=_AT, fetched_at=_AT, page_starts=[0, 12]
)
_SOURCE: Final = SourceText(rest="\n\n", sha256="d" * 64, length=12)
_LONG_SOURCE: Final = SourceText(rest_ref=_REF, sha256="d" * 64, length=90_000)
_EMBED: Final[dict[str, Any]] = {
    **_ENVELOPE,
    "target": _TARGET,
    "generation": 7,
    "title": "Title",
    "content_sha256": "c" * 64,
    "chunk_count": 1,
}


def samples() -> dict[str, BaseModel]:
    """Return them by what they are, as this code makes them."""
    stored = Stored(
        ref=_REF,
        content_type="text/html",
        charset="utf-8",
        final_url=_URL,
        stored_at=_AT,
        extractor="html-1",
        etag='"v1"',
        last_modified="Sat, 14 Mar 2026 12:00:00 GMT",
        fetched_at=_AT,
    )
    return {
        "a page to fetch": ScrapeTask(**_ENVELOPE, url=_URL),
        "a page that is stored": ScrapeTask(**_ENVELOPE, url=_URL, stored=stored),
        "a page whose content is known": ScrapeTask(
            **_ENVELOPE, url=_URL, known=stored, current=True, max_age_s=60
        ),
        "a page of a crawl": ScrapeTask(**_ENVELOPE, url=_URL, links=True, hosts=["example.com"]),
        "a sitemap to read": ScrapeTask(**_ENVELOPE, url=_URL, sitemap=CrawlRules(include=["/docs/*"])),
        "a page to read despite a doubt": ScrapeTask(**_ENVELOPE, url=_URL, accept=["soft_404"]),
        "chunks to embed": EmbedTask(**_EMBED, chunks=[_CHUNK]),
        "a duplicate to take away": EmbedTask(**{**_EMBED, "chunk_count": 0}, chunks=[], withdraws=True),
        "documents to erase": EmbedTask(**{**_EMBED, "chunk_count": 0}, chunks=[], erases=["d-1"]),
        "chunks by reference": EmbedTask(**_EMBED, chunks_ref=_REF, page=_PAGE, source=_SOURCE, chunker="2"),
        "chunks with metadata": EmbedTask(**_EMBED, chunks=[_CHUNK], metadata={"team": "harbour"}),
        **_reports(),
        "a text to split": ChunkTask(
            **_ENVELOPE, text="Some words.", title="Title", chunker="1", result_key="chunks/m-1.json"
        ),
        "a stored text to split": ChunkTask(**_ENVELOPE, text_ref=_REF),
        "a stored result": Chunked(failure=_FAILURE),
    }


def _reports() -> dict[str, BaseModel]:
    counts: dict[str, Any] = {"chunk_count": 1, "embedded": 1, "model": "m", "dimension": 4}
    embedded = Embedded(**counts, published=True, removed=1, searchable_at=_AT)
    superseded = Embedded(**counts, published=False, superseded=True)
    waits = Retrying(tries=2, next_retry_at=_AT, cause="http_503", retry_in_s=45.0, site="example.com")
    waits = waits.model_copy(update={"failure": _FAILURE})
    chunked = Chunked(chunks=[_CHUNK], chunk_count=1, chunker="2", tokenizer="0f", source=_SOURCE)

    def report(stage: str, status: str, **made: BaseModel) -> StageResult:
        return stage_result(**_REPORT, stage=stage, status=status, **made)

    return {
        "a document": report("scraping", "success", document=Document(**_DOCUMENT, text="Some words.")),
        "a large document": report("scraping", "success", document=Document(**_DOCUMENT, text_ref=_REF)),
        "an unchanged document": report(
            "scraping", "success", document=Document(**_DOCUMENT, unchanged="not_modified")
        ),
        "a document with links": report(
            "scraping",
            "success",
            document=Document(**_DOCUMENT, text="Some words.", links=[_URL], canonical_url=_URL),
        ),
        "a book with an empty chapter": report(
            "scraping", "success", document=Document(**_DOCUMENT, text="Some words.", notes=["A note."])
        ),
        "a page that only leads on": report(
            "scraping", "failed", failure=_FAILURE.model_copy(update={"links": [_URL]})
        ),
        "a sitemap": report(
            "scraping",
            "success",
            sitemap=Sitemap(urls=[_URL], sitemaps=[_URL], final_url=_URL, complete=False),
        ),
        "a chunked document": report("chunking", "success", chunked=chunked),
        "a document of many chunks": report(
            "chunking", "success", chunked=Chunked(chunks_ref=_REF, chunk_count=900, source=_LONG_SOURCE)
        ),
        "erased documents": report(
            "embedding",
            "success",
            erased=Erased(chunks=1, memberships=1, vectors=1, postings=2, left=0),
        ),
        "an embedded document": report("embedding", "success", embedded=embedded),
        "a superseded document": report("embedding", "success", embedded=superseded),
        **{f"a failure in {stage}": report(stage, "failed", failure=_FAILURE) for stage in BY_NAME},
        **{f"a wait in {stage}": report(stage, "retrying", retrying=waits) for stage in BY_NAME},
    }
