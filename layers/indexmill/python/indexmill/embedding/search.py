"""Search in one of the caller's corpora."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, TransientError
from indexmill.contracts.http_search import SearchRequest, SearchResponse, SearchResult, SearchTimings
from indexmill.contracts.identity import CorpusIsolation, corpus_name
from indexmill.embedding.ports import Embedder, SearchQuery, Vector, VectorIndex
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

_QUESTION_S: Final = 2.0
"""For the vector of a question, from the look-up of the endpoint's name to the last byte of its answer."""


@dataclass(frozen=True, slots=True)
class SearchCorpus:
    """Embeds the question, where it is in words, and asks the index.

    A question that cannot be embedded is answered by its keywords alone, and the answer is marked. Without a
    hit it is an error: the document that is looked for may be one that only its meaning finds.
    """

    index: VectorIndex
    embedder: Embedder
    clock: Clock
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    observability: Observability = field(default_factory=lambda: Observability("embedding"))

    def __call__(self, caller_id: str, request: SearchRequest) -> SearchResponse:
        """Return the best chunks.

        Raises CallerError (corpus_name_invalid, not_found, dimension_mismatch, validation_error,
        token_limit_exceeded) or TransientError (embedding_unavailable, search_unavailable).
        """
        began = self.clock.monotonic()
        key = self.isolation.key(caller_id, corpus_name(request.corpus_name))
        if not self.index.corpus_exists(key):
            raise CallerError(ErrorCode.NOT_FOUND, "No such corpus.", field="body.corpus_name")
        vector, failed = self._vector(request)
        embedded = self.clock.monotonic()
        found = self.index.search(SearchQuery(key, self.embedder.space, request.query, vector, request.top_k))
        ended = self.clock.monotonic()
        if failed is not None:
            self._degraded(failed, answered=bool(found.hits))
        return SearchResponse(
            results=[SearchResult(**asdict(hit)) for hit in found.hits],
            query_ms=_ms(began, ended),
            timings=SearchTimings(embed_ms=_ms(began, embedded), search_ms=_ms(embedded, ended)),
            degraded=None if failed is None else "embedding",
            other_model=found.other_model,
        )

    def _vector(self, request: SearchRequest) -> tuple[Vector | None, IndexmillError | None]:
        """Return the question's vector, or why there is none."""
        if request.query is not None:
            return self._embedded(request.query, allow_degraded=request.allow_degraded)
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
        return vector, None

    def _embedded(self, query: str, *, allow_degraded: bool) -> tuple[Vector | None, IndexmillError | None]:
        try:
            return self.embedder.embed([query], timeout_s=_QUESTION_S)[0], None
        except IndexmillError as error:
            if error.code == ErrorCode.TOKEN_LIMIT_EXCEEDED:
                message = "The query has more tokens than the model takes."
                raise CallerError(error.code, message, field="body.query") from error
            if not allow_degraded:
                self._degraded(error, answered=False)
            return None, error

    def _degraded(self, failed: IndexmillError, *, answered: bool) -> None:
        """Note that a question was not embedded; raises TransientError unless it is `answered`."""
        self.observability.log.warning(
            "search.degraded", extra={"degraded": "embedding", "code": failed.code, "answered": answered}
        )
        self.observability.count("search_degraded_total", answered="yes" if answered else "no")
        if not answered:
            message = "The question cannot be embedded right now."
            raise TransientError(
                ErrorCode.EMBEDDING_UNAVAILABLE, message, retry_after=failed.retry_after
            ) from failed


def _ms(start: float, end: float) -> int:
    return round(1_000 * (end - start))
