"""The vector index in memory: the same BM25, cosine and fencing as the one in Postgres, all of it exact."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import mul

from indexmill.contracts.content import Chunk
from indexmill.contracts.http_search import Neighbour, Period, SearchFilter
from indexmill.contracts.identity import corpus_key
from indexmill.contracts.messages import Target
from indexmill.embedding import ranking
from indexmill.embedding.analyzer import ANALYZER_VERSION, count_terms
from indexmill.embedding.documents import check, missing_vectors, newest, outcomes, unit
from indexmill.embedding.ports import (
    POOL,
    Candidate,
    DocumentVersion,
    Hit,
    Lists,
    Named,
    PublishOutcome,
    SearchQuery,
    Space,
    Vector,
)
from indexmill.platform.postgres.database import storable
from indexmill.platform.time import SystemClock


def length_norm(words: float, average: float) -> float:
    """Return what a term's count is damped by in a chunk of `words` words."""
    return ranking.K1 * (1 - ranking.B + ranking.B * words / average)


def saturation(count: int, norm: float) -> float:
    """Return the share of its weight that a term occurring `count` times brings, below 1."""
    return count / (count + norm)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A chunk that search sees."""

    chunk_id: str
    chunk: Chunk
    version: DocumentVersion
    vector: Vector
    counts: Counter[int]
    words: int


@dataclass(slots=True)
class _Document:
    corpus_key: str
    published: int | None = None
    min_generation: int = 0
    metadata: dict[str, str] | None = None
    chunks: dict[str, _Kept] = field(default_factory=dict)


class InMemoryVectorIndex:
    """`VectorIndex` for tests; safe for threads."""

    def __init__(self) -> None:
        """Start empty."""
        self._documents: dict[str, _Document] = {}
        self._corpora: set[str] = set()
        self._lock = threading.Lock()

    def add_corpus(self, corpus_key: str) -> None:
        """Make the corpus exist without a document, as a submitted job does."""
        self._corpora.add(corpus_key)

    def fence(self, document_id: str, generation: int, corpus_key: str = "") -> None:
        """Refuse generations below `generation` from now on, as a cancel does."""
        with self._lock:
            document = self._documents.setdefault(document_id, _Document(corpus_key))
            document.min_generation = max(document.min_generation, generation)

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        """Return those of `chunk_ids` whose vector in `space` is already kept."""
        with self._lock:
            kept = {
                chunk_id
                for document in self._documents.values()
                for chunk_id, chunk in document.chunks.items()
                if chunk.version.space == space
            }
        return kept & set(chunk_ids)

    def copies(self, space: Space, chunks: Mapping[str, tuple[Target, Chunk]]) -> dict[str, Vector]:
        """Return vectors of equal texts in other documents of the same caller and corpus, by chunk id."""
        with self._lock:
            kept = [each for document in self._documents.values() for each in document.chunks.values()]
        known = {_place(k.version.target, k.chunk): k.vector for k in kept if k.version.space == space}
        places = {key: _place(*of) for key, of in chunks.items()}
        return {key: known[place] for key, place in places.items() if place in known}

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document; all of the call's versions or none."""
        chosen = newest(versions)
        for version in chosen:
            check(version)
        with self._lock:
            self._corpora |= {version.target.corpus_key for version in chosen}
            built = [(version, self._built(version)) for version in chosen if self._may_publish(version)]
            for version, chunks in built:
                document = self._document(version)
                version.removed[:] = document.chunks.keys() - chunks.keys()
                document.published, document.chunks = version.generation, chunks
                version.searchable_at = SystemClock().now()
                if version.metadata is not None:
                    document.metadata = dict(version.metadata)
            published = {
                key: document.published
                for key, document in self._documents.items()
                if document.published is not None
            }
        return outcomes(versions, published)

    def corpus_exists(self, corpus: str | Named) -> bool:
        """Return whether the corpus was ever submitted to."""
        return self._key(corpus) is not None

    def _key(self, corpus: str | Named) -> str | None:
        """Return the corpus's key; here no corpus is renamed, and names are the only ids."""
        key = corpus if isinstance(corpus, str) else corpus_key(corpus.owner, corpus.name or "")
        return key if key in self._corpora else None

    def lists(self, query: SearchQuery) -> Lists:
        """Return the candidates among the chunks of published versions."""
        keys = [self._key(corpus) for corpus in query.corpora]
        kept = [] if None in keys else self._kept([key for key in keys if key])
        among = kept if query.filter is None else [each for each in kept if self._has(each, query.filter)]
        keyword, ceiling = _by_words(query.text, kept, among) if query.text is not None else ([], 1.0)
        vector = _by_vector(query.vector, query.space, among) if query.vector is not None else []
        other_model = any(chunk.version.space != query.space for chunk in kept)
        return Lists(keyword, vector, ceiling, other_model, keys)

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0) -> dict[str, Hit]:
        """Return those of the chunks that are published in one of the corpora, by chunk id."""
        kept = self._kept(corpora)
        chosen = [each for each in kept if each.chunk_id in chunk_ids]
        return {each.chunk_id: self._hit(each, kept, neighbours) for each in chosen}

    def _hit(self, kept: _Kept, others: list[_Kept], neighbours: int) -> Hit:
        hit = _hit(kept)
        beside = [
            Neighbour(chunk_id=each.chunk_id, **each.chunk.model_dump(exclude={"tokens"}))
            for each in others
            if each.version is kept.version and 0 < abs(each.chunk.ordinal - hit.ordinal) <= neighbours
        ]
        beside.sort(key=lambda each: each.ordinal)
        return replace(hit, metadata=self._documents[hit.document_id].metadata, neighbours=beside)

    def _has(self, kept: _Kept, wanted: SearchFilter) -> bool:
        """Return whether the chunk's document matches."""
        version, page = kept.version, kept.version.page
        metadata = self._documents[version.target.document_id].metadata or {}
        times = (
            *((wanted.published_at, page.published_at), (wanted.fetched_at, page.fetched_at)),
            (wanted.indexed_at, version.searchable_at),
            *((period, _time(metadata.get(name))) for name, period in (wanted.metadata_dates or {}).items()),
        )
        language = f"{(page.language or '').lower()}-"
        return (
            version.target.url.startswith(wanted.url_prefix or "")
            and (wanted.language is None or language.startswith(f"{wanted.language.lower()}-"))
            and (wanted.content_type is None or page.content_type == wanted.content_type.lower())
            and metadata.items() >= (wanted.metadata or {}).items()
            and all(period is None or _within(at, period) for period, at in times)
        )

    def _kept(self, corpora: Sequence[str]) -> list[_Kept]:
        with self._lock:
            return [
                chunk
                for document in self._documents.values()
                if document.corpus_key in corpora
                for chunk in document.chunks.values()
            ]

    def _document(self, version: DocumentVersion) -> _Document:
        key = version.target.document_id
        return self._documents.setdefault(key, _Document(version.target.corpus_key))

    def _may_publish(self, version: DocumentVersion) -> bool:
        document = self._document(version)
        document.corpus_key = version.target.corpus_key
        newer = document.published is None or document.published < version.generation
        return newer and document.min_generation <= version.generation

    def _built(self, version: DocumentVersion) -> dict[str, _Kept]:
        held = self._document(version).chunks
        chunks: dict[str, _Kept] = {}
        missing = 0
        for chunk_id, chunk in zip(version.chunk_ids, version.chunks, strict=True):
            known = held.get(chunk_id)
            same_space = known is not None and known.version.space == version.space
            vector = known.vector if known is not None and same_space else version.vectors.get(chunk_id)
            if vector is None:
                missing += 1
                continue
            counts = count_terms(chunk.embedded_text)
            direction = unit(vector, version.space)
            chunks[chunk_id] = _Kept(chunk_id, chunk, version, direction, counts, counts.total())
        if missing:
            raise missing_vectors(missing)
        return chunks


def _time(text: str | None) -> datetime | None:
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _within(at: datetime | None, period: Period) -> bool:
    since, before = period.since, period.before
    return at is not None and (since is None or at >= since) and (before is None or at < before)


def _by_words(text: str, kept: list[_Kept], among: list[_Kept]) -> tuple[list[Candidate], float]:
    frequency: Counter[int] = Counter()
    for chunk in kept:
        frequency.update(chunk.counts.keys())
    weights = ranking.weights(count_terms(text), frequency, len(kept))
    average = sum(chunk.words for chunk in kept) / max(len(kept), 1)
    step, scored = ranking.step(weights), []
    for chunk in among:
        steps = sum(
            round(weight / step * saturation(chunk.counts[term], length_norm(chunk.words, average)))
            for term, weight in weights.items()
            if term in chunk.counts
        )
        if steps > 0:
            scored.append(_candidate(chunk, steps * step))
    return _best(scored), sum(weights.values()) or 1.0


def _by_vector(vector: Vector, space: Space, kept: list[_Kept]) -> list[Candidate]:
    direction = unit(vector, space)
    same = [chunk for chunk in kept if chunk.version.space == space]
    return _best([_candidate(chunk, sum(map(mul, chunk.vector, direction))) for chunk in same])


def _candidate(kept: _Kept, score: float) -> Candidate:
    return Candidate(kept.chunk_id, kept.version.target.document_id, score)


def _best(scored: list[Candidate]) -> list[Candidate]:
    return sorted(scored, key=lambda each: (-each.score, each.chunk_id))[:POOL]


def _hit(kept: _Kept) -> Hit:
    chunk, version = kept.chunk, kept.version
    return Hit(
        chunk_id=kept.chunk_id,
        corpus_key=version.target.corpus_key,
        text=storable(chunk.text),
        source_url=version.target.url,
        title=version.title,
        document_id=version.target.document_id,
        ordinal=chunk.ordinal,
        context=storable(chunk.context),
        start=chunk.start,
        end=chunk.end,
        generation=version.generation,
        model=version.space.model,
        dimension=version.space.dimension,
        analyzer=ANALYZER_VERSION,
        chunker=version.chunker,
        indexed_at=version.searchable_at,
        facts=version.page,
    )


def _place(target: Target, chunk: Chunk) -> tuple[str, str, str]:
    return target.corpus_key, target.caller_id, chunk.embedded_text
