"""Plan of the row changes that publish one version of a document, computed before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from indexmill.contracts.content import Chunk
from indexmill.embedding.adapters.pgvector.binary_copy import NewChunk
from indexmill.embedding.analyzer import ANALYZER_VERSION, DEFAULT_LANGUAGE, count_terms
from indexmill.embedding.ports import DocumentVersion, Vector
from indexmill.embedding.publication import missing_vectors, unit
from indexmill.platform.postgres.stored_text import storable


@dataclass(frozen=True, slots=True)
class KeptChunk:
    """A chunk of the version that is published so far."""

    row_id: int
    spaces: frozenset[int]
    """Spaces in which its vector is kept."""


@dataclass(slots=True)
class Plan:
    """Row changes for one version."""

    version: DocumentVersion
    document: int
    corpus: int
    space: int
    kept: Mapping[str, KeptChunk]
    """What the document has so far, by chunk id."""
    places: list[tuple[int, tuple[int, int, int]]] = field(default_factory=list)
    """Row and (ordinal, start, end) of each chunk of the version."""
    chunks: list[NewChunk] = field(default_factory=list)
    vectors: list[tuple[int, Vector]] = field(default_factory=list)
    """By row: unit vectors to add."""

    @property
    def lacking(self) -> int:
        """Return how many row ids `fill` will use."""
        return sum(chunk_id not in self.kept for chunk_id in self.version.chunk_ids)

    @property
    def gone(self) -> list[int]:
        """Rows of chunks that the version no longer has."""
        wanted = set(self.version.chunk_ids)
        return [old.row_id for chunk_id, old in self.kept.items() if chunk_id not in wanted]

    @property
    def stale_vectors(self) -> list[tuple[int, int]]:
        """Row and space of vectors that the version no longer uses."""
        wanted = set(self.version.chunk_ids)
        return [
            (old.row_id, space)
            for chunk_id, old in self.kept.items()
            for space in old.spaces
            if chunk_id not in wanted or space != self.space
        ]

    def fill(self, row_ids: Iterator[int]) -> None:
        """Work out what is new. Raises TransientError(embedding_incomplete) when a chunk has no vector."""
        version, missing = self.version, 0
        for chunk_id, chunk in zip(version.chunk_ids, version.chunks, strict=True):
            old = self.kept.get(chunk_id)
            row_id = old.row_id if old else next(row_ids)
            self.places.append((row_id, (chunk.ordinal, chunk.start, chunk.end)))
            if old is None:
                self.chunks.append(self._analyzed(row_id, chunk_id, chunk))
            if old is None or self.space not in old.spaces:
                vector = version.vectors.get(chunk_id)
                missing += vector is None
                if vector is not None:
                    self.vectors.append((row_id, unit(vector, version.space)))
        if missing:
            raise missing_vectors(missing)

    def _analyzed(self, row_id: int, chunk_id: str, chunk: Chunk) -> NewChunk:
        counts = count_terms(chunk.embedded_text, DEFAULT_LANGUAGE)
        return NewChunk(
            row_id=row_id,
            corpus=self.corpus,
            document=self.document,
            chunk_id=bytes.fromhex(chunk_id),
            tokens=chunk.tokens,
            counts=counts,
            words=counts.total(),
            analyzer_version=ANALYZER_VERSION,
            language=DEFAULT_LANGUAGE,
            context=storable(chunk.context),
            text=storable(chunk.text),
        )
