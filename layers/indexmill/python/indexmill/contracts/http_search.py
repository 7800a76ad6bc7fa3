"""Request and answer of the search endpoint."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from indexmill.contracts.identity import CorpusName

MAX_QUERY_CHARS = 2_000
MAX_TOP_K = 100
_MAX_DIMENSION = 16_000

Query = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class SearchRequest(BaseModel):
    """Exactly one of `query` and `query_embedding`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    corpus_name: CorpusName | None = None
    """None means the corpus "default"."""
    query: Query | None = None
    """A question in words: found by meaning and by keywords."""
    query_embedding: list[Number] | None = Field(default=None, min_length=1, max_length=_MAX_DIMENSION)
    """A vector of the corpus's own model: found by meaning alone."""
    top_k: int = Field(default=10, ge=1, le=MAX_TOP_K)
    allow_degraded: bool = True
    """False: 503 rather than an answer by keywords alone while questions cannot be embedded."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.query is None) == (self.query_embedding is None):
            raise ValueError("Send exactly one of query and query_embedding.")
        return self


class SearchResult(BaseModel):
    """One chunk that was found."""

    chunk_id: str
    text: str
    score: float
    """Above 0, at most 1, and falling down the list. For a `query`: how near the chunk is to being first by
    keywords and by meaning; for a `query_embedding`: the cosine similarity."""
    source_url: str
    title: str | None
    document_id: str
    ordinal: int
    """Position of the chunk in its document, from 0."""
    context: str
    """Title and headings above the chunk."""
    start: int
    """Offset of `text` in the document's text, in characters."""
    end: int
    stale: bool = False
    """Whether the page was gone (404, 410) when a job with `when_gone: mark_stale` fetched it last."""


class SearchTimings(BaseModel):
    """Where the time went, in milliseconds."""

    embed_ms: int
    search_ms: int


class SearchResponse(BaseModel):
    """What was found, best first."""

    results: list[SearchResult]
    query_ms: int
    """The whole search, in milliseconds."""
    timings: SearchTimings
    degraded: Literal["embedding"] | None = None
    """`embedding`: the question could not be embedded, and was answered by its keywords alone."""
    other_model: bool = False
    """Whether documents of the corpus have vectors of another model. Until they are indexed again, a
    `query` finds them by its keywords alone and a `query_embedding` not at all."""
