"""Answers about the documents of a corpus, without a question."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class DocumentItem(BaseModel):
    """The published version of one document."""

    document_id: str
    url: str
    """Canonical; of a document without a URL "upload:" and its name."""
    title: str | None = None
    chunk_count: int
    text_length: int | None = None
    """Characters of the text that the chunks were cut from; null where it is not kept."""
    content_sha256: str | None = None
    """Digest of the raw content; null for chunks or texts that a caller gave."""
    generation: int
    """Grows with each version that is published of the document."""
    model: str | None = None
    dimension: int | None = None
    indexed_at: datetime | None = None
    """Since when search sees this version; null, as the facts below, for one of an earlier release."""
    fetched_at: datetime | None = None
    """When the site answered with this content last."""
    published_at: datetime | None = None
    """When the page was published, as it says itself."""
    content_type: str | None = None
    """Media type of the raw content, without parameters."""
    language: str | None = None
    """As the page declares it."""
    metadata: dict[str, str] | None = None
    """What its caller said about it."""
    stale: bool = False
    """Whether the page was gone (404, 410) when a job with `when_gone: mark_stale` fetched it last."""
    stale_since: datetime | None = None


class DocumentList(BaseModel):
    """One page of a corpus's documents, in the order of their URLs."""

    documents: list[DocumentItem]
    count: int
    """Of this page."""
    next_cursor: str | None = None
    """For the next page; null on the last one."""


class DocumentChunk(BaseModel):
    """One chunk of a document."""

    chunk_id: str
    ordinal: int
    """Position in the document, from 0."""
    text: str
    context: str
    """Title and headings above the chunk."""
    start: int
    """Offset of `text` in the document's text, in characters."""
    end: int
    tokens: int
    page: int | None = None
    """Page of a PDF on which the chunk begins, from 1."""


class ChunkPage(BaseModel):
    """One page of a document's chunks, in order."""

    document_id: str
    generation: int
    """Version that the chunks are of; the same on every page."""
    chunks: list[DocumentChunk]
    count: int
    """Of this page."""
    next_cursor: str | None = None
    """For the next page; null on the last one."""
