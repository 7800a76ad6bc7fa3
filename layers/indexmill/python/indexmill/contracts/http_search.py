"""Request and answer of the search endpoint."""

from __future__ import annotations

from datetime import MAXYEAR, MINYEAR, UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from indexmill.contracts.content import MAX_METADATA_KEYS, MetadataName, MetadataValue
from indexmill.contracts.identity import MAX_URL_LENGTH, CorpusRef, PlainText

MAX_QUERY_CHARS = 2_000
MAX_TOP_K = 100
MAX_CORPORA = 10
REACHABLE = 200
"""Results that pages reach: `offset` and `top_k` together."""
MAX_NEIGHBOURS = 3
MAX_ANSWER_BYTES = 4 * 1024 * 1024
"""Of texts in an answer: Lambda sends 6 MB at most, and JSON spells some characters with more bytes."""
_MAX_DIMENSION = 16_000

Query = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_QUERY_CHARS)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Mode(StrEnum):
    """Lists that a search consults."""

    HYBRID = "hybrid"
    VECTOR = "vector"
    KEYWORD = "keyword"


def _moment(value: object) -> datetime:
    """Return the time that a text of ISO 8601 means: without an offset one of UTC, of a date its first."""
    try:
        found = datetime.fromisoformat(value if isinstance(value, str) else "")
    except ValueError:
        raise ValueError("Send a date or a time as 2026-03-14 or 2026-03-14T09:30:00Z.") from None
    if found.tzinfo is None:
        return found.replace(tzinfo=UTC)
    try:
        # Postgres does not know each offset that Python knows.
        return found.astimezone(UTC)
    except OverflowError:
        first, last = datetime(MINYEAR, 1, 1, tzinfo=UTC), datetime(MAXYEAR, 12, 31, 23, 59, 59, tzinfo=UTC)
        return first if found.year == MINYEAR else last


Moment = Annotated[datetime, BeforeValidator(_moment), WithJsonSchema({"type": "string"})]
"""A date or a time of ISO 8601."""


class Period(BaseModel):
    """Times from `since` on and before `before`; at least one of them."""

    model_config = ConfigDict(extra="forbid", strict=True)

    since: Moment | None = None
    before: Moment | None = None

    @model_validator(mode="after")
    def _is_a_period(self) -> Self:
        if self.since is None and self.before is None:
            raise ValueError("Send since, before or both.")
        if self.since is not None and self.before is not None and self.since >= self.before:
            raise ValueError("since must be earlier than before.")
        return self


class SearchFilter(BaseModel):
    """Conditions on a document, all of which hold; one that is unknown of the document does not."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url_prefix: Annotated[PlainText, Field(min_length=1, max_length=MAX_URL_LENGTH)] | None = None
    """What `source_url` begins with."""
    language: Annotated[PlainText, Field(min_length=1, max_length=35)] | None = None
    """As the page declares it; `en` is also `en-GB`. Upper and lower case are equal."""
    content_type: Annotated[PlainText, Field(min_length=1, max_length=100)] | None = None
    """Media type without parameters."""
    published_at: Period | None = None
    """When the page was published, as it says itself."""
    fetched_at: Period | None = None
    """When its site answered with this content last."""
    indexed_at: Period | None = None
    """Since when search sees this version."""
    metadata: Annotated[dict[MetadataName, MetadataValue], Field(max_length=MAX_METADATA_KEYS)] | None = None
    """Values that the metadata has under these names."""
    metadata_dates: Annotated[dict[MetadataName, Period], Field(max_length=MAX_METADATA_KEYS)] | None = None
    """Periods in which dates or times of ISO 8601 are that the metadata has under these names."""

    @model_validator(mode="after")
    def _has_a_condition(self) -> Self:
        if not any(getattr(self, name) for name in type(self).model_fields):
            raise ValueError("Send at least one condition, or no filter.")
        return self


class SearchRequest(BaseModel):
    """Exactly one of `query` and `query_embedding`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    corpus_name: CorpusRef | None = None
    """None means the corpus "default"."""
    corpora: list[CorpusRef] | None = Field(default=None, min_length=1, max_length=MAX_CORPORA)
    """Instead of `corpus_name`: several corpora, searched as if they were one."""
    query: Query | None = None
    """A question in words: found by meaning and by keywords."""
    query_embedding: list[Number] | None = Field(default=None, min_length=1, max_length=_MAX_DIMENSION)
    """A vector of the corpus's own model: found by meaning alone."""
    mode: Mode | None = Field(default=None, strict=False)
    """`hybrid` (of a `query`, if not given): by meaning and by keywords. `keyword`: by keywords alone,
    without embedding. `vector` (always of a `query_embedding`): by meaning alone, never degraded."""
    top_k: int = Field(default=10, ge=1, le=MAX_TOP_K)
    offset: int = Field(default=0, ge=0, le=REACHABLE - 1)
    """Results to skip; with `top_k` at most 200. Pages of an unchanged corpus make up one order."""
    min_similarity: Number | None = Field(default=None, ge=-1, le=1)
    """Cosine similarity below which a chunk does not count as found by meaning."""
    min_bm25: Number | None = Field(default=None, ge=0)
    """BM25 score below which a chunk does not count as found by keywords."""
    one_per_document: bool = False
    """Only the best chunk of each document."""
    rerank: bool | None = None
    """Whether a reranker puts the best 200 in its order; as the stack is set up if not given."""
    filter: SearchFilter | None = None
    """Only chunks of documents that match. It holds before the lists are cut, and changes no score."""
    explain: bool = False
    """Show the parts of each score."""
    highlights: bool = False
    """Show where a result's text has words of the `query`."""
    neighbours: int = Field(default=0, ge=0, le=MAX_NEIGHBOURS)
    """Show so many chunks before and after each result, of the same version of its document."""
    allow_degraded: bool = True
    """False: 503 rather than an answer by keywords alone while questions cannot be embedded."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.query is None) == (self.query_embedding is None):
            raise ValueError("Send exactly one of query and query_embedding.")
        if self.corpora is not None and self.corpus_name is not None:
            raise ValueError("Send only one of corpus_name and corpora.")
        return self

    @property
    def consults(self) -> Mode:
        """Return the mode that is meant."""
        return self.mode or (Mode.VECTOR if self.query is None else Mode.HYBRID)


class Part(BaseModel):
    """A result in one list: the keyword list or the vector list."""

    score: float
    """Of the keyword list BM25, of the vector list the cosine similarity."""
    rank: int
    """Place in the list, from 1."""
    normalized: float
    """`score` between the lowest of the list, 0, and its highest, 1."""
    weight: float
    """Of the list. In `hybrid` a result's `score` is the sum of weight times `normalized`."""


class EmbeddingVersion(BaseModel):
    """Code and model that made what search compares."""

    model: str
    dimension: int
    analyzer: int
    """Version of the code that makes terms of a text."""
    chunker: str | None
    """Version of the code that split the text; null: a caller made the chunks, or it is unknown."""


class Explanation(BaseModel):
    """Parts of a result's score, and the version that it belongs to."""

    keyword: Part | None
    """None: the chunk is not among the 200 candidates of this list, or the list was not consulted."""
    vector: Part | None
    relevance: float | None
    """Score by the reranker, as it sent it; null where it was not asked."""
    generation: int
    """Number of the document's version; it grows with each."""
    age_s: int | None
    """Seconds since search sees that version; null for what an older release indexed."""
    embedding_version: EmbeddingVersion


class Span(BaseModel):
    """Part of a text, from `start` to before `end`, in characters (code points)."""

    start: int
    end: int


class Neighbour(BaseModel):
    """A chunk beside a result."""

    chunk_id: str
    text: str
    context: str
    ordinal: int
    start: int
    end: int


class SearchResult(BaseModel):
    """One chunk that was found."""

    chunk_id: str
    corpus_name: str
    text: str
    """Untrusted, as titles and headings are: the author of a page wrote it. Quote it to a model as data."""
    score: float
    """Above 0, at most 1, and falling down the list. `hybrid`: the weighted mean of what keywords and meaning
    say, from 0 for their last candidate to 1 for the first. `keyword`: the share of the BM25 score that no
    chunk can exceed. `vector`: the cosine similarity. Reranked: the relevance, by the logistic function where
    some are not between 0 and 1."""
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
    hidden_characters: int = 0
    """Invisible characters in `text`: zero-width ones, tags, and those that change the direction."""
    stale: bool = False
    """Whether the page was gone (404, 410) when a job with `when_gone: mark_stale` fetched it last."""
    indexed_at: datetime | None = None
    """Since when search sees this version; null for one that a release published which did not keep it."""
    fetched_at: datetime | None = None
    """When its site answered with this content last."""
    published_at: datetime | None = None
    """When the page was published, as it says itself."""
    content_type: str | None = None
    language: str | None = None
    metadata: dict[str, str] | None = None
    """As its caller submitted it."""
    page: int | None = None
    """Page of a PDF on which the chunk begins, from 1."""
    explain: Explanation | None = None
    """Only when asked for, as all below."""
    highlights: list[Span] | None = None
    """Parts of `text` that are words of the query, in order; at most 50, of the first 8,000 characters."""
    preceding: list[Neighbour] | None = None
    """Chunks before this one, in order; null also where the answer would be too large."""
    following: list[Neighbour] | None = None


class SearchTimings(BaseModel):
    """Where the time went, in milliseconds."""

    embed_ms: int
    search_ms: int
    rerank_ms: int = 0
    """A part of `search_ms`."""


class SearchResponse(BaseModel):
    """What was found, best first."""

    results: list[SearchResult]
    query_ms: int
    """The whole search, in milliseconds."""
    timings: SearchTimings
    degraded: Literal["embedding"] | None = None
    """`embedding`: the question could not be embedded, and was answered by its keywords alone."""
    reranked: bool | None = None
    """Whether the results are in the reranker's order. False: it failed or took too long, and they are in the
    order of their lists. Null: none was asked."""
    other_model: bool = False
    """Whether documents of the corpus have vectors of another model. Until they are indexed again, a
    `query` finds them by its keywords alone and a `query_embedding` not at all."""
