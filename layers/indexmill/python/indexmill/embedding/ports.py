"""Ports of Embedding: a model, and an index that stores and finds chunks."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from indexmill.contracts.content import Chunk, PageFacts, SourceText
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.http_search import Neighbour, SearchFilter
from indexmill.contracts.messages import Target

Vector = Sequence[float]


@dataclass(frozen=True, slots=True)
class Space:
    """An embedding space: vectors of different spaces are never compared."""

    model: str
    dimension: int


class Embedder(Protocol):
    """Turns texts into vectors of one space."""

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        ...

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one finite, non-zero vector of `space.dimension` numbers per text, in order.

        Raises TransientError (openai_rate_limit, embedding_unavailable, embedding_incomplete,
        embedding_invalid, embedding_bad_response) or PermanentError (token_limit_exceeded,
        embedding_rejected, dimension_mismatch).
        """
        ...


class NotReranked(Exception):
    """A reranker gave no scores; the order stays as it is."""


class Reranker(Protocol):
    """Compares a question with each text: a model of its own, slower and better than vectors."""

    def rerank(self, query: str, texts: Sequence[str], *, timeout_s: float) -> list[float]:
        """Return a finite score per text, in order; higher is better. Raises NotReranked."""
        ...


class VectorCache(Protocol):
    """Keeps the vectors of a document that did not get finished, for days. May forget; never raises."""

    def get(self, space: Space, message_id: str) -> dict[str, Vector]:
        """Return what was put for this message, by chunk id."""
        ...

    def put(self, space: Space, message_id: str, vectors: Mapping[str, Vector]) -> None:
        """Replace what is kept for this message."""
        ...


@dataclass(slots=True)
class DocumentVersion:
    """One generation of a document, complete."""

    target: Target
    generation: int
    job_id: str | None
    title: str | None
    content_sha256: str | None
    space: Space
    chunks: Sequence[Chunk]
    chunk_ids: Sequence[str]
    """Beside `chunks`."""
    vectors: dict[str, Vector] = field(default_factory=dict)
    """By chunk id; only those that the index does not hold yet."""
    removed: list[str] = field(default_factory=list)
    """Ids of chunks that only the version before had; publishing fills it in."""
    chunker: str | None = None
    """Version of the code that split the text; None where it is unknown."""
    source: SourceText | None = None
    """None: the text that the chunks were cut from is not kept."""
    page: PageFacts = field(default_factory=PageFacts)
    metadata: Mapping[str, str] | None = None
    """Replaces what the document has; None leaves it."""
    searchable_at: datetime | None = None
    """Since when search sees it; publishing fills it in."""


@dataclass(frozen=True, slots=True)
class Named:
    """A corpus as a caller names it: by a name, or by an id."""

    caller_id: str
    owner: str
    """Whose names count: the caller's, or '' where callers share corpora."""
    name: str | None = None
    public_id: str | None = None
    """Hex digits of the id."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A question to corpora, from which the index makes one list for each of `text` and `vector`."""

    corpora: Sequence[str | Named]
    """Keys, or what one caller names them; the lists are those of all together."""
    space: Space
    text: str | None
    vector: Vector | None
    filter: SearchFilter | None = None
    """Only chunks of documents that match are in a list, which is as full as their number allows."""


class Candidate(NamedTuple):
    """A chunk in one of an index's two lists."""

    chunk_id: str
    document: str
    """The same for chunks of one document; what it is, is the index's affair."""
    score: float
    """BM25, or the cosine similarity."""


@dataclass(frozen=True, slots=True)
class Lists:
    """Candidates for a question: in each list the best `POOL` chunks, best first, equal ones by chunk id."""

    keyword: Sequence[Candidate]
    vector: Sequence[Candidate]
    ceiling: float
    """BM25 score that no chunk reaches, however often it repeats the question's words."""
    other_model: bool
    """Whether a corpus has vectors of another space than the question's: only words find those chunks."""
    keys: Sequence[str | None] = ()
    """Of the query's corpora, in order; None for one that is unknown or that the caller may not read."""
    shared: Collection[str] = ()
    """Those of the keys whose corpora another caller shares with this one."""


POOL: Final = 200
"""Candidates of each list, whatever part of the results is asked for."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk of a published version, as search shows it."""

    chunk_id: str
    corpus_key: str
    text: str
    source_url: str
    title: str | None
    document_id: str
    ordinal: int
    context: str
    start: int
    end: int
    generation: int
    model: str
    """Of the space of its vector, with `dimension`."""
    dimension: int
    analyzer: int
    """Version of the code that made its terms."""
    chunker: str | None
    indexed_at: datetime | None
    """Since when search sees the version; None for what an older release published."""
    stale: bool = False
    """Whether the page was gone when it was fetched last."""
    facts: PageFacts = field(default_factory=PageFacts)
    metadata: dict[str, str] | None = None
    neighbours: Sequence[Neighbour] = ()
    """Chunks before and after it in the same version, in order."""
    page: int | None = None
    """Of a PDF: where the chunk begins, from 1."""


class PublishOutcome(StrEnum):
    """Outcome of publishing a version."""

    PUBLISHED = "published"
    SUPERSEDED = "superseded"
    """A newer generation is what search sees; nothing changed."""
    FENCED = "fenced"
    """The generation may not be published any more, and no newer one is; nothing changed."""


class VectorIndex(Protocol):
    """Keeps chunks with their vectors and words. All calls raise TransientError(search_unavailable)."""

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        """Return those of `chunk_ids` whose vector in `space` is already kept."""
        ...

    def copies(self, space: Space, chunks: Mapping[str, tuple[Target, Chunk]]) -> dict[str, Vector]:
        """Return vectors of equal texts in other documents of the same caller and corpus, by chunk id."""
        ...

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document: whole, or not at all.

        Publishing the same version again is harmless, and it counts as published. Creates the corpus
        when it is new. Notes the removed chunks, and since when search sees it, in each version.
        Raises PermanentError(vector_rejected, dimension_mismatch) when one cannot be kept; then nothing of
        the call is visible.
        """
        ...

    def erase(self, job_id: str, document_ids: Sequence[str], generation: int) -> Erased:
        """Erase the documents, but for what a newer generation published of them; return what there was.

        Asked again for the same job and documents it returns the same.
        """
        ...

    def corpus_exists(self, corpus: str | Named) -> bool:
        """Return whether the corpus was ever submitted to, as far as is known: the lists tell for sure."""
        ...

    def lists(self, query: SearchQuery) -> Lists:
        """Return the candidates among the chunks of published versions.

        BM25 counts chunks, words and terms over all of the query's corpora, and over no other.
        """
        ...

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0) -> dict[str, Hit]:
        """Return those of the chunks that are published in one of the corpora, by chunk id.

        Each has up to so many neighbours on either side.
        """
        ...


class ChunkCounts(Protocol):
    """Counts each caller's chunks of the day, in UTC."""

    def add(self, caller_id: str, chunks: int, most: int) -> bool:
        """Add chunks to today's; False, and nothing is added, when the sum would be more than `most`.

        A negative number takes back. Raises TransientError(database_unavailable).
        """
        ...
