"""The search use case and its HTTP models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from indexmill.contracts.errors import (
    BreakerOpen,
    CallerError,
    ErrorCode,
    IndexmillError,
    PermanentError,
    TransientError,
)
from indexmill.contracts.http_search import EmbeddingVersion, Mode, SearchRequest
from indexmill.contracts.identity import CorpusIsolation
from indexmill.embedding.analyzer import ANALYZER_VERSION
from indexmill.embedding.ports import Space, Vector
from indexmill.embedding.search import QuestionVectors, SearchCorpus
from indexmill.embedding.settings import EmbeddingReadApiSettings
from indexmill.embedding.wiring import build_search
from tests.support.function_env import environment
from tests.support.index_builders import CALLER, target, version
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.state_table import InMemoryBreakers
from tests.twins.vector_index import InMemoryVectorIndex


class SlowEmbedder(HashEmbedder):
    """Takes 40 ms of the clock it is given."""

    def __init__(self, clock: FrozenClock) -> None:
        super().__init__()
        self._clock = clock

    def embed(self, texts: Any, *, timeout_s: float) -> list[Vector]:
        self._clock.tick(0.040)
        return super().embed(texts, timeout_s=timeout_s)


@pytest.fixture
def embedder() -> HashEmbedder:
    return HashEmbedder()


@pytest.fixture
def search(embedder: HashEmbedder) -> SearchCorpus:
    index = InMemoryVectorIndex()
    texts = ["alpha beta", "gamma delta"]
    vectors = embedder.embed(texts, timeout_s=1)
    made = version(texts, space=embedder.space)
    made.vectors.update(zip(made.chunk_ids, vectors, strict=True))
    index.publish([made])
    embedder.calls.clear()
    embedder.timeouts.clear()
    return SearchCorpus(index, embedder, FrozenClock())


def test_a_question_in_words_is_embedded_once(search: SearchCorpus, embedder: HashEmbedder) -> None:
    answer = search(CALLER, SearchRequest(query="  alpha beta "))
    assert embedder.calls == [["alpha beta"]]
    assert embedder.timeouts == [2.0]
    first = answer.results[0]
    assert (first.text, first.score, first.ordinal, first.start, first.end) == ("alpha beta", 1.0, 0, 0, 10)
    assert (first.source_url, first.title, first.context) == (target().url, "Title 1", "Guide")


def test_a_vector_is_taken_as_it_is(search: SearchCorpus, embedder: HashEmbedder) -> None:
    vector = [float(number) for number in embedder.embed(["gamma delta"], timeout_s=1)[0]]
    embedder.calls.clear()
    answer = search(CALLER, SearchRequest(query_embedding=vector, top_k=1))
    assert embedder.calls == []
    assert [result.text for result in answer.results] == ["gamma delta"]
    assert answer.results[0].score == pytest.approx(1.0)


def test_the_time_is_reported_in_parts() -> None:
    clock, index = FrozenClock(), InMemoryVectorIndex()
    index.add_corpus(target().corpus_key)
    answer = SearchCorpus(index, SlowEmbedder(clock), clock)(CALLER, SearchRequest(query="x"))
    assert (answer.query_ms, answer.timings.embed_ms, answer.timings.search_ms) == (40, 40, 0)
    assert answer.results == []


@pytest.mark.parametrize(("caller", "corpus"), [(CALLER, "other"), ("f" * 16, None)])
def test_an_unknown_corpus_or_another_callers_is_not_found(
    search: SearchCorpus, embedder: HashEmbedder, caller: str, corpus: str | None
) -> None:
    with pytest.raises(CallerError) as raised:
        search(caller, SearchRequest(query="alpha", corpus_name=corpus))
    assert (raised.value.code, raised.value.http_status) == (ErrorCode.NOT_FOUND, 404)
    assert raised.value.message == "No such corpus."
    assert embedder.calls == []


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (SearchRequest(query="a", corpus_name="Not Valid"), ErrorCode.CORPUS_NAME_INVALID),
        (SearchRequest(query_embedding=[1.0, 2.0]), ErrorCode.DIMENSION_MISMATCH),
        (SearchRequest(query_embedding=[0.0] * 8), ErrorCode.VALIDATION_ERROR),
        (SearchRequest(query_embedding=[1e308] * 8), ErrorCode.VALIDATION_ERROR),
        (SearchRequest(query="a", corpora=["fine", "Not Valid"]), ErrorCode.CORPUS_NAME_INVALID),
    ],
)
def test_what_is_wrong_with_a_request_is_said(
    search: SearchCorpus, request_: SearchRequest, code: str
) -> None:
    with pytest.raises(CallerError) as raised:
        search(CALLER, request_)
    assert (raised.value.code, raised.value.http_status) == (code, 422)
    assert raised.value.field is not None


def test_the_lists_that_a_mode_consults(search: SearchCorpus, embedder: HashEmbedder) -> None:
    def found(**asked: Any) -> list[str]:
        return [hit.text for hit in search(CALLER, SearchRequest(**asked)).results]

    assert found(query="delta") == found(query="delta", mode=Mode.HYBRID) == ["gamma delta", "alpha beta"]
    assert len(embedder.calls) == 1
    assert found(query="beta", mode=Mode.KEYWORD) == ["alpha beta"]
    assert found(query="delta", mode=Mode.KEYWORD) == ["gamma delta"]
    assert len(embedder.calls) == 1, "nothing is embedded"
    vector = [float(number) for number in embedder.embed(["alpha beta"], timeout_s=1)[0]]
    by_text, by_vector = found(query="alpha beta", mode=Mode.VECTOR), found(query_embedding=vector)
    assert (
        by_text
        == by_vector
        == found(query_embedding=vector, mode=Mode.VECTOR)
        == ["alpha beta", "gamma delta"]
    )


@pytest.mark.shows("R141")
def test_a_question_of_a_caller_is_embedded_once_an_hour(
    search: SearchCorpus, embedder: HashEmbedder
) -> None:
    clock = search.clock
    assert isinstance(clock, FrozenClock)
    isolated = SearchCorpus(search.index, embedder, clock, CorpusIsolation.SHARED)
    assert isinstance(search.index, InMemoryVectorIndex)
    search.index.add_corpus(CorpusIsolation.SHARED.key(CALLER, "default"))
    for caller, query, calls in (
        (CALLER, "alpha", 1),
        (CALLER, "alpha", 1),
        (CALLER, "beta", 2),
        ("f" * 16, "alpha", 3),
        (CALLER, "beta", 3),
    ):
        answer = isolated(caller, SearchRequest(query=query))
        assert (len(embedder.calls), answer.degraded) == (calls, None)
    clock.tick(3_601)
    isolated(CALLER, SearchRequest(query="alpha"))
    assert len(embedder.calls) == 4


def test_the_vectors_of_another_model_are_others() -> None:
    kept = QuestionVectors(FrozenClock())
    kept.put(CALLER, Space("one", 2), "alpha", [1.0, 0.0])
    assert kept.get(CALLER, Space("one", 2), "alpha") == [1.0, 0.0]
    assert kept.get(CALLER, Space("two", 2), "alpha") is None


def test_the_vectors_of_questions_are_bounded() -> None:
    kept, space = QuestionVectors(FrozenClock()), Space("wide", 400_000)
    for text in "abcd":
        kept.put(CALLER, space, text, [1.0])
        assert kept.get(CALLER, space, "a") == [1.0]
    assert [text for text in "abcd" if kept.get(CALLER, space, text) is not None] == ["a", "d"]


@pytest.mark.parametrize(("weight", "first"), [(0.0, "alpha beta"), (1.0, "gamma delta")])
def test_the_weight_of_vectors_is_a_setting(search: SearchCorpus, weight: float, first: str) -> None:
    """A question that has a word of one chunk and the vector of the other."""

    class Misled(HashEmbedder):
        def embed(self, texts: Any, *, timeout_s: float) -> list[Vector]:
            return super().embed(["gamma delta"], timeout_s=timeout_s)

    given = environment("EmbeddingReadApi") | {"EMBEDDING_VECTOR_WEIGHT": str(weight)}
    settings = EmbeddingReadApiSettings.from_environment(given)
    built = build_search(settings, index=search.index, embedder=Misled(), breakers=InMemoryBreakers())
    assert built(CALLER, SearchRequest(query="alpha")).results[0].text == first


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"query": "a", "top_k": 100, "offset": 101}, "offset"),
        ({"query": "a", "top_k": 2, "offset": 199}, "offset"),
        ({"query_embedding": [1.0] * 8, "mode": Mode.HYBRID}, "mode"),
        ({"query_embedding": [1.0] * 8, "mode": Mode.KEYWORD}, "mode"),
        ({"query_embedding": [1.0] * 8, "min_bm25": 1.0}, "min_bm25"),
        ({"query": "a", "mode": Mode.VECTOR, "min_bm25": 1.0}, "min_bm25"),
        ({"query": "a", "mode": Mode.KEYWORD, "min_similarity": 0.5}, "min_similarity"),
    ],
)
def test_what_does_not_go_together_is_named(search: SearchCorpus, asked: dict[str, Any], field: str) -> None:
    with pytest.raises(CallerError) as raised:
        search(CALLER, SearchRequest(**asked))
    assert (raised.value.code, raised.value.field) == (ErrorCode.VALIDATION_ERROR, f"body.{field}")


@pytest.mark.shows("P064")
def test_bounds_hold_on_every_page(search: SearchCorpus) -> None:
    def texts(**asked: Any) -> list[str]:
        return [hit.text for hit in search(CALLER, SearchRequest(query="alpha beta", **asked)).results]

    assert texts(mode=Mode.VECTOR) == ["alpha beta", "gamma delta"]
    assert texts(mode=Mode.VECTOR, min_similarity=0.9) == ["alpha beta"]
    assert texts(mode=Mode.VECTOR, min_similarity=0.9, offset=1) == []
    assert texts(mode=Mode.KEYWORD, min_bm25=1e6) == []
    assert texts(min_bm25=1e6, min_similarity=0.9) == ["alpha beta"]


@pytest.mark.shows("X17", "P070", "R169")
def test_a_score_is_explained(search: SearchCorpus) -> None:
    first, second = search(CALLER, SearchRequest(query="alpha", explain=True)).results
    best, other = sorted((first, second), key=lambda hit: hit.text)
    assert best.explain is not None
    assert other.explain is not None
    keyword, vector = best.explain.keyword, best.explain.vector
    assert keyword is not None
    assert vector is not None
    assert (keyword.rank, keyword.normalized, keyword.weight) == (1, 1.0, pytest.approx(0.7))
    assert (vector.rank, vector.weight) == (1 if first is best and vector.normalized else 2, 0.3)
    assert best.score == pytest.approx(0.7 * keyword.normalized + 0.3 * vector.normalized)
    assert (other.explain.keyword, best.explain.generation, best.explain.age_s) == (None, 1, 0)
    assert best.explain.embedding_version == EmbeddingVersion(
        model="hash", dimension=8, analyzer=ANALYZER_VERSION, chunker=None
    )
    assert search(CALLER, SearchRequest(query="alpha")).results[0].explain is None


def test_several_corpora_are_searched_and_each_result_names_its_own() -> None:
    index, embedder = InMemoryVectorIndex(), HashEmbedder()
    for name in ("birds", "boats"):
        texts = [f"harbour {name}", f"other {name}"]
        vectors = embedder.embed(texts, timeout_s=1)
        made = version(texts, to=target(corpus=name), space=embedder.space)
        made.vectors.update(zip(made.chunk_ids, vectors, strict=True))
        index.publish([made])
    search = SearchCorpus(index, embedder, FrozenClock())
    asked = SearchRequest(query="harbour", corpora=["boats", "birds", "boats"], mode=Mode.KEYWORD)
    found = {(hit.corpus_name, hit.text) for hit in search(CALLER, asked).results}
    assert found == {("birds", "harbour birds"), ("boats", "harbour boats")}
    with pytest.raises(CallerError) as raised:
        search(CALLER, SearchRequest(query="harbour", corpora=["boats", "bees"]))
    assert (raised.value.code, raised.value.field) == (ErrorCode.NOT_FOUND, "body.corpora.1")
    assert "bees" in raised.value.message


NOT_EMBEDDED = [
    TransientError(ErrorCode.EMBEDDING_UNAVAILABLE, "away"),
    TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=7),
    TransientError(ErrorCode.EMBEDDING_INVALID, "nan"),
    PermanentError(ErrorCode.EMBEDDING_REJECTED, "refused"),
    PermanentError(ErrorCode.DIMENSION_MISMATCH, "other model"),
    BreakerOpen(ErrorCode.EMBEDDING_UNAVAILABLE, 11.5),
]


@pytest.mark.shows("B68")
@pytest.mark.parametrize("error", NOT_EMBEDDED, ids=lambda error: f"{type(error).__name__} {error.code}")
def test_a_question_that_is_not_embedded_is_answered_by_its_keywords(
    search: SearchCorpus,
    embedder: HashEmbedder,
    error: IndexmillError,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedder.fail_next.append(error)
    answer = search(CALLER, SearchRequest(query="delta"))
    assert ([hit.text for hit in answer.results], answer.degraded) == (["gamma delta"], "embedding")
    (said,) = (each.__dict__ for each in caplog.records if each.message == "search.degraded")
    assert (said["degraded"], said["code"], said["answered"]) == ("embedding", error.code, True)
    written = capsys.readouterr().out.splitlines()
    (counted,) = (json.loads(line) for line in written if "search_degraded_total" in line)
    assert counted["answered"] == "yes"
    assert search(CALLER, SearchRequest(query="delta")).degraded is None


@pytest.mark.shows("B68")
@pytest.mark.parametrize("error", NOT_EMBEDDED, ids=lambda error: f"{type(error).__name__} {error.code}")
@pytest.mark.parametrize(
    "request_",
    [
        SearchRequest(query="nothing of it"),
        SearchRequest(query="delta", allow_degraded=False),
        SearchRequest(query="delta", mode=Mode.VECTOR),
    ],
    ids=["no hit", "not allowed", "vector"],
)
def test_a_degraded_answer_without_a_hit_or_leave_is_an_outage(
    search: SearchCorpus, embedder: HashEmbedder, error: IndexmillError, request_: SearchRequest
) -> None:
    embedder.fail_next.append(error)
    with pytest.raises(TransientError) as raised:
        search(CALLER, request_)
    assert (raised.value.code, raised.value.http_status) == (ErrorCode.EMBEDDING_UNAVAILABLE, 503)
    assert raised.value.retry_after == error.retry_after


def test_a_question_that_is_too_long_for_the_model_is_the_callers_error(
    search: SearchCorpus, embedder: HashEmbedder
) -> None:
    embedder.fail_next.append(PermanentError(ErrorCode.TOKEN_LIMIT_EXCEEDED, "too long"))
    with pytest.raises(CallerError):
        search(CALLER, SearchRequest(query="alpha"))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"query": "a", "query_embedding": [1.0]},
        {"query": "   "},
        {"query": "a" * 2001},
        {"query": 5},
        {"query": "a", "top_k": 0},
        {"query": "a", "top_k": 101},
        {"query": "a", "top_k": "10"},
        {"query": "a", "top_k": True},
        {"query": "a", "limit": 3},
        {"query": "a", "offset": -1},
        {"query": "a", "offset": 200},
        {"query": "a", "mode": "both"},
        {"query": "a", "min_similarity": 1.1},
        {"query": "a", "min_bm25": -1},
        {"query": "a", "corpora": []},
        {"query": "a", "corpora": ["a"] * 11},
        {"query": "a", "corpora": ["a"], "corpus_name": "a"},
        {"query_embedding": []},
        {"query_embedding": [float("nan")]},
        {"query_embedding": ["1"]},
    ],
)
def test_requests_of_another_form_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SearchRequest.model_validate(body)


def test_the_longest_question_is_measured_without_its_blanks() -> None:
    assert SearchRequest(query=" " * 50 + "a" * 2000).top_k == 10
