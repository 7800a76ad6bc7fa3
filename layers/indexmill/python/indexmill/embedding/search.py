"""Search in one of the caller's corpora."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from indexmill.contracts.errors import CallerError, ErrorCode, PermanentError, TransientError
from indexmill.contracts.http_search import SearchRequest, SearchResponse, SearchResult, SearchTimings
from indexmill.contracts.identity import CorpusIsolation, corpus_name
from indexmill.embedding.ports import Embedder, SearchQuery, Vector, VectorIndex
from indexmill.platform.time.clock import Clock


@dataclass(frozen=True, slots=True)
class SearchCorpus:
    """Embeds the question, where it is in words, and asks the index."""

    index: VectorIndex
    embedder: Embedder
    clock: Clock
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def __call__(self, caller_id: str, request: SearchRequest, *, timeout_s: float) -> SearchResponse:
        """Return the best chunks; `timeout_s` is how long the embedding may take.

        Raises CallerError (corpus_name_invalid, not_found, dimension_mismatch, validation_error,
        token_limit_exceeded) or TransientError (embedding_unavailable, search_unavailable, and what else the
        embedder says).
        """
        began = self.clock.monotonic()
        key = self.isolation.key(caller_id, corpus_name(request.corpus_name))
        if not self.index.corpus_exists(key):
            raise CallerError(ErrorCode.NOT_FOUND, "No such corpus.", field="body.corpus_name")
        vector = self._vector(request, timeout_s)
        embedded = self.clock.monotonic()
        hits = self.index.search(SearchQuery(key, self.embedder.space, request.query, vector, request.top_k))
        ended = self.clock.monotonic()
        return SearchResponse(
            results=[SearchResult(**asdict(hit)) for hit in hits],
            query_ms=_ms(began, ended),
            timings=SearchTimings(embed_ms=_ms(began, embedded), search_ms=_ms(embedded, ended)),
        )

    def _vector(self, request: SearchRequest, timeout_s: float) -> Vector:
        if request.query is not None:
            return self._embedded(request.query, timeout_s)
        vector, space = request.query_embedding or [], self.embedder.space
        if len(vector) != space.dimension:
            raise CallerError(
                ErrorCode.DIMENSION_MISMATCH,
                f"query_embedding has {len(vector)} numbers where {space.model} has {space.dimension}.",
                field="body.query_embedding",
            )
        if not any(vector):
            message = "query_embedding must not be all zeros."
            raise CallerError(ErrorCode.VALIDATION_ERROR, message, field="body.query_embedding")
        return vector

    def _embedded(self, query: str, timeout_s: float) -> Vector:
        try:
            return self.embedder.embed([query], timeout_s=timeout_s)[0]
        except PermanentError as error:
            if error.code != ErrorCode.TOKEN_LIMIT_EXCEEDED:
                # The endpoint refuses every question alike: it is misconfigured, not the caller.
                message = "The embedding endpoint cannot be used right now."
                raise TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, message) from error
            message = "The query has more tokens than the model takes."
            raise CallerError(ErrorCode.TOKEN_LIMIT_EXCEEDED, message, field="body.query") from error


def _ms(start: float, end: float) -> int:
    return round(1_000 * (end - start))
