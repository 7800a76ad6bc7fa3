"""Embedder and vector index behind their circuit breakers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from indexmill.embedding.ports import (
    DocumentVersion,
    Embedder,
    Hit,
    PublishOutcome,
    SearchQuery,
    Space,
    Vector,
    VectorIndex,
)
from indexmill.platform.breakers import Breaker


@dataclass(frozen=True, slots=True)
class GuardedEmbedder:
    """An `Embedder` that raises BreakerOpen while the endpoint's breaker is open."""

    embedder: Embedder
    breaker: Breaker

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self.embedder.space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one vector per text, in order."""
        return self.breaker.call(lambda: self.embedder.embed(texts, timeout_s=timeout_s))


@dataclass(frozen=True, slots=True)
class GuardedIndex:
    """A `VectorIndex` whose write calls raise BreakerOpen while the index's breaker is open."""

    index: VectorIndex
    breaker: Breaker

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        """Return those of `chunk_ids` whose vector in `space` is already kept."""
        return self.breaker.call(lambda: self.index.stored(space, chunk_ids))

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document."""
        return self.breaker.call(lambda: self.index.publish(versions))

    def corpus_exists(self, corpus_key: str) -> bool:
        """Return whether the corpus was ever submitted to."""
        return self.index.corpus_exists(corpus_key)

    def search(self, query: SearchQuery) -> list[Hit]:
        """Return at most `top_k` chunks of published versions, best first."""
        return self.index.search(query)
