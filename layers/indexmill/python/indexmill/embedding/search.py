"""Search in the caller's corpora."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from threading import Lock
from typing import Final, NoReturn

from pydantic_core import to_json

from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, TransientError
from indexmill.contracts.http_search import (
    MAX_ANSWER_BYTES,
    REACHABLE,
    EmbeddingVersion,
    Explanation,
    Mode,
    Part,
    SearchRequest,
    SearchResponse,
    SearchResult,
    SearchTimings,
    Span,
)
from indexmill.contracts.identity import CorpusIsolation, hidden_characters
from indexmill.embedding.analyzer import count_terms, spans
from indexmill.embedding.corpora import is_hidden, named, shown, without_hidden
from indexmill.embedding.ports import (
    Embedder,
    Hit,
    Named,
    NotReranked,
    Reranker,
    SearchQuery,
    Space,
    Vector,
    VectorIndex,
)
from indexmill.embedding.ranking import VECTOR_WEIGHT, Order, Ranked, ordered, reordered, weights_of
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

_HIGHLIGHTED_CHARS: Final = 8_000
_MOST_HIGHLIGHTS: Final = 50
"""Of a result."""
_QUESTION_S: Final = 2.0
"""For the vector of a question, from the look-up of the endpoint's name to the last byte of its answer."""
_KEPT_NUMBERS: Final = 1_000_000
"""Of all vectors of questions together: 4 MB."""
_KEPT_S: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class QuestionVectors:
    """Vectors of the latest questions, in this process alone, for an hour.

    By caller, model and text: how fast a question is answered tells nothing of other callers' questions.
    """

    clock: Clock
    _kept: OrderedDict[tuple[str, Space, bytes], tuple[float, Vector]] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def get(self, caller_id: str, space: Space, text: str) -> Vector | None:
        """Return the vector of a question that the caller asked before."""
        key = _question(caller_id, space, text)
        with self._lock:
            kept_until, vector = self._kept.get(key, (0.0, None))
            if vector is None or kept_until < self.clock.monotonic():
                return None
            self._kept.move_to_end(key)
            return vector

    def put(self, caller_id: str, space: Space, text: str, vector: Vector) -> None:
        """Keep the vector; the one that was not asked for longest makes room."""
        with self._lock:
            self._kept[_question(caller_id, space, text)] = self.clock.monotonic() + _KEPT_S, vector
            while len(self._kept) * space.dimension > max(_KEPT_NUMBERS, space.dimension):
                self._kept.popitem(last=False)


def _question(caller_id: str, space: Space, text: str) -> tuple[str, Space, bytes]:
    return caller_id, space, sha256(text.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True)
class SearchCorpus:
    """Embeds the question, where it is in words, asks the index for both lists and puts them in one order.

    A question that cannot be embedded is answered by its keywords alone, and the answer is marked. Without a
    hit it is an error: the document that is looked for may be one that only its meaning finds.
    """

    index: VectorIndex
    embedder: Embedder
    clock: Clock
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    observability: Observability = field(default_factory=lambda: Observability("embedding"))
    vector_weight: float = VECTOR_WEIGHT
    reranker: Reranker | None = None
    rerank_s: float = 1.0
    vectors: QuestionVectors = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", QuestionVectors(self.clock))

    def __call__(self, caller_id: str, request: SearchRequest) -> SearchResponse:
        """Return the best chunks.

        Raises CallerError (corpus_name_invalid, not_found, dimension_mismatch, validation_error,
        token_limit_exceeded) or TransientError (embedding_unavailable, search_unavailable).
        """
        began = self.clock.monotonic()
        mode = _checked(request, can_rerank=self.reranker is not None)
        asked = self._corpora(caller_id, request)
        vector, failed = (None, None) if mode == Mode.KEYWORD else self._vector(caller_id, request, mode)
        embedded = self.clock.monotonic()
        text = None if mode == Mode.VECTOR else request.query
        query = SearchQuery(list(asked.values()), self.embedder.space, text, vector, request.filter)
        order = Order(
            hybrid=text is not None and vector is not None,
            vector_weight=self.vector_weight,
            min_similarity=request.min_similarity,
            min_bm25=request.min_bm25,
            one_per_document=request.one_per_document,
        )
        for again in (True, False):
            lists = self.index.lists(query)
            corpora = {
                key or _unknown(place, corpus): shown(corpus)
                for (place, corpus), key in zip(asked.items(), lists.keys, strict=True)
            }
            _check_hidden(request, lists.shared)
            ranked = ordered(lists, order)
            listed = self.clock.monotonic()
            ranked, reranked = self._reranked(request, list(corpora), ranked)
            ranked_at = self.clock.monotonic()
            wanted = ranked[request.offset :]
            rows = page(self.index, list(corpora), wanted, request.top_k, request.neighbours)
            # A version that was replaced since its chunks were listed is gone: the new one is listed now.
            if len(rows) == min(len(wanted), request.top_k) or not again:
                break
        ended = self.clock.monotonic()
        if failed is not None:
            self._degraded(failed, answered=bool(ranked))
        explain = _Explain(weights_of(lists, order), self.clock.now()) if request.explain else None
        results = [_result(each, hit, corpora[hit.corpus_key], explain) for each, hit in rows]
        for result, (_, hit) in zip(results, rows, strict=True):
            if hit.corpus_key in lists.shared:
                result.metadata = without_hidden(result.metadata)
        if request.highlights:
            _highlight(results, request.query or "")
        if request.neighbours:
            _add_neighbours(results, [hit for _, hit in rows])
        return SearchResponse(
            results=results,
            query_ms=_ms(began, ended),
            timings=SearchTimings(
                embed_ms=_ms(began, embedded),
                search_ms=_ms(embedded, ended),
                rerank_ms=0 if reranked is None else _ms(listed, ranked_at),
            ),
            degraded=None if failed is None else "embedding",
            reranked=reranked,
            other_model=lists.other_model,
        )

    def _corpora(self, caller_id: str, request: SearchRequest) -> dict[str, Named]:
        """Return the corpora that are searched, by the field that names them."""
        if request.corpora is None:
            asked = {"body.corpus_name": request.corpus_name}
        else:
            asked = {f"body.corpora.{at}": name for at, name in enumerate(request.corpora)}
        found = {place: named(self.isolation, caller_id, name, place) for place, name in asked.items()}
        for place, each in found.items():
            # Before the question costs anything.
            if not self.index.corpus_exists(each):
                _unknown(place, each)
        return found

    def _vector(
        self, caller_id: str, request: SearchRequest, mode: Mode
    ) -> tuple[Vector | None, IndexmillError | None]:
        """Return the question's vector, or why there is none."""
        if request.query is not None:
            allow_degraded = request.allow_degraded and mode == Mode.HYBRID
            return self._embedded(caller_id, request.query, allow_degraded=allow_degraded)
        vector, space = request.query_embedding or [], self.embedder.space
        if len(vector) != space.dimension:
            raise CallerError(
                ErrorCode.DIMENSION_MISMATCH,
                f"query_embedding has {len(vector)} numbers where {space.model} has {space.dimension}.",
                field="body.query_embedding",
            )
        if not any(vector):
            _refuse("query_embedding", "query_embedding must not be all zeros.")
        if not math.isfinite(math.hypot(*vector)):
            _refuse("query_embedding", "The numbers of query_embedding are too large.")
        return vector, None

    def _embedded(
        self, caller_id: str, query: str, *, allow_degraded: bool
    ) -> tuple[Vector | None, IndexmillError | None]:
        space = self.embedder.space
        kept = self.vectors.get(caller_id, space, query)
        if kept is not None:
            return kept, None
        try:
            (vector,) = self.embedder.embed([query], timeout_s=_QUESTION_S)
        except IndexmillError as error:
            if error.code == ErrorCode.TOKEN_LIMIT_EXCEEDED:
                message = "The query has more tokens than the model takes."
                raise CallerError(error.code, message, field="body.query") from error
            if not allow_degraded:
                self._degraded(error, answered=False)
            return None, error
        self.vectors.put(caller_id, space, query, vector)
        return vector, None

    def _reranked(
        self, request: SearchRequest, corpora: Sequence[str], ranked: list[Ranked]
    ) -> tuple[list[Ranked], bool | None]:
        """Return what pages reach in the reranker's order, or all as it is; and whether it was reranked."""
        if self.reranker is None or request.query is None or request.rerank is False or not ranked:
            return ranked, None
        pool = page(self.index, corpora, ranked, REACHABLE)
        texts = [f"{hit.context}\n{hit.text}".strip() for _, hit in pool]
        try:
            relevances = self.reranker.rerank(request.query, texts, timeout_s=self.rerank_s)
        except NotReranked as error:
            self.observability.log.warning("search.not_reranked", extra={"reason": str(error)})
            self.observability.count("search_reranked_total", answered="no")
            return ranked, False
        self.observability.count("search_reranked_total", answered="yes")
        return reordered([each for each, _ in pool], relevances), True

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


def page(
    index: VectorIndex,
    corpora: Sequence[str],
    ranked: Sequence[Ranked],
    top_k: int,
    neighbours: int = 0,
) -> list[tuple[Ranked, Hit]]:
    """Return the first `top_k` that are still there, with their rows: a re-index may have dropped some."""
    found: list[tuple[Ranked, Hit]] = []
    at = 0
    while len(found) < top_k and at < len(ranked):
        part = ranked[at : at + top_k]
        at += len(part)
        hits = index.hits(corpora, [each.chunk_id for each in part], neighbours)
        found += [(each, hits[each.chunk_id]) for each in part if each.chunk_id in hits]
    return found[:top_k]


def _checked(request: SearchRequest, *, can_rerank: bool) -> Mode:
    """Return the mode that the request means. Raises CallerError(validation_error)."""
    if request.rerank and not can_rerank:
        _refuse("rerank", "This stack has no reranker.")
    if request.rerank and request.query is None:
        _refuse("rerank", "A reranker needs a query in words.")
    if request.offset + request.top_k > REACHABLE:
        _refuse("offset", f"offset and top_k together must be at most {REACHABLE}.")
    if request.query is None and request.mode not in (None, Mode.VECTOR):
        _refuse("mode", f"A query_embedding has no keywords: {request.mode} needs a query.")
    mode = request.consults
    if mode == Mode.VECTOR and request.min_bm25 is not None:
        _refuse("min_bm25", "Nothing is found by keywords in mode vector.")
    if request.query is None and request.highlights:
        _refuse("highlights", "A query_embedding has no words: highlights need a query.")
    if mode == Mode.KEYWORD and request.min_similarity is not None:
        _refuse("min_similarity", "Nothing is found by meaning in mode keyword.")
    return mode


def _unknown(place: str, corpus: Named) -> NoReturn:
    message = "No such corpus." if place == "body.corpus_name" else f"No such corpus: {shown(corpus)}."
    raise CallerError(ErrorCode.NOT_FOUND, message, field=place)


def _check_hidden(request: SearchRequest, shared: Collection[str]) -> None:
    """Refuse to filter by what a shared corpus does not show. Raises CallerError(validation_error)."""
    wanted = request.filter
    names = [] if wanted is None else [*(wanted.metadata or ()), *(wanted.metadata_dates or ())]
    if shared and any(map(is_hidden, names)):
        _refuse("filter", "Metadata whose name begins with _ is for the owner of a corpus alone.")


def _refuse(name: str, message: str) -> NoReturn:
    raise CallerError(ErrorCode.VALIDATION_ERROR, message, field=f"body.{name}")


def _result(ranked: Ranked, hit: Hit, name: str, explain: _Explain | None) -> SearchResult:
    values = {name: getattr(hit, name) for name in SearchResult.model_fields.keys() & Hit.__slots__}
    return SearchResult(
        **values,
        **dict(hit.facts),
        corpus_name=name,
        score=ranked.score,
        hidden_characters=hidden_characters(hit.text),
        explain=None if explain is None else explain(ranked, hit),
    )


@dataclass(frozen=True, slots=True)
class _Explain:
    weights: tuple[float, float]
    now: datetime

    def __call__(self, ranked: Ranked, hit: Hit) -> Explanation:
        keyword, vector = (
            None if part is None else Part(**asdict(part), weight=weight)
            for part, weight in zip((ranked.keyword, ranked.vector), self.weights, strict=True)
        )
        age = None if hit.indexed_at is None else max(self.now - hit.indexed_at, timedelta())
        return Explanation(
            keyword=keyword,
            vector=vector,
            relevance=ranked.relevance,
            generation=hit.generation,
            age_s=None if age is None else int(age.total_seconds()),
            embedding_version=EmbeddingVersion(
                model=hit.model, dimension=hit.dimension, analyzer=hit.analyzer, chunker=hit.chunker
            ),
        )


def _highlight(results: Sequence[SearchResult], query: str) -> None:
    terms = count_terms(query)
    for result in results:
        found = spans(result.text[:_HIGHLIGHTED_CHARS], terms)[:_MOST_HIGHLIGHTS]
        result.highlights = [Span(start=start, end=end) for start, end in found]


def _add_neighbours(results: Sequence[SearchResult], hits: Sequence[Hit]) -> None:
    """Show the neighbours of each result, the best first, as long as the answer does not get too large."""
    left = MAX_ANSWER_BYTES - sum(_size(result.text) for result in results)
    for result, hit in zip(results, hits, strict=True):
        left -= sum(_size(each.text) + _size(each.context) for each in hit.neighbours)
        if left < 0:
            return
        result.preceding = [each for each in hit.neighbours if each.ordinal < hit.ordinal]
        result.following = [each for each in hit.neighbours if each.ordinal > hit.ordinal]


def _size(text: str) -> int:
    """Return the bytes of a text as JSON in UTF-8."""
    return len(to_json(text))


def _ms(start: float, end: float) -> int:
    return round(1_000 * (end - start))
