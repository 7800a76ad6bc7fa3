"""A reranker puts the best of a search in its order; while it fails, the order is that of the lists."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_search import REACHABLE, SearchRequest, SearchResponse
from indexmill.embedding.guarded import GuardedReranker
from indexmill.embedding.ports import NotReranked
from indexmill.embedding.search import SearchCorpus
from indexmill.embedding.settings import EmbeddingReadApiSettings
from indexmill.embedding.wiring import build_search
from indexmill.platform.breakers import FAILURES
from tests.support.aiohttp_server import served
from tests.support.function_env import environment
from tests.support.index_builders import CALLER, version
from tests.support.stack import eventually
from tests.twins.embedder import HashEmbedder
from tests.twins.state_table import InMemoryBreakers
from tests.twins.vector_index import InMemoryVectorIndex

pytestmark = pytest.mark.shows("P066")

TEXTS = [f"{word} harbour" for word in ("alpha", "beta", "gamma", "delta")]
Scores = Callable[[str], float]


@dataclass
class Endpoint:
    """A `/rerank` endpoint that scores a text as the test says."""

    score: Scores = lambda text: text.count("gamma") + 0.5 * text.count("beta")
    status: int = 200
    raw: str | None = None
    hangs: bool = False
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.keys.append(request.headers.get("Authorization"))
        if self.hangs:
            await asyncio.Event().wait()
        scores = [(self.score(text), at) for at, text in enumerate(body["documents"])]
        results = [{"index": at, "relevance_score": score} for score, at in sorted(scores, reverse=True)]
        text = json.dumps({"results": results}) if self.raw is None else self.raw
        return web.Response(text=text, status=self.status, content_type="application/json")


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


@pytest.fixture
def address(endpoint: Endpoint) -> Iterator[str]:
    app = web.Application()
    app.router.add_post("/v2/rerank", endpoint.answer)
    with served(app) as address:
        yield f"{address}/v2/rerank"


def settings(address: str, **more: str) -> EmbeddingReadApiSettings:
    given = {"RERANK_URL": address, "RERANK_MODEL": "judge", "RERANK_API_KEY": "key", **more}
    return EmbeddingReadApiSettings.from_environment(environment("EmbeddingReadApi") | given)


Build = Callable[..., SearchCorpus]


@pytest.fixture
def build(address: str) -> Iterator[Build]:
    """Yield a function that builds a search over a few chunks, as the deployed one is built."""
    made: list[SearchCorpus] = []

    def build(**more: str) -> SearchCorpus:
        made.append(_searching(address, **more))
        return made[-1]

    yield build
    for each in made:
        assert isinstance(each.reranker, GuardedReranker)
        each.reranker._punctual._end()


def _searching(address: str, **more: str) -> SearchCorpus:
    index, embedder = InMemoryVectorIndex(), HashEmbedder()
    made = version(TEXTS, space=embedder.space)
    made.vectors.update(zip(made.chunk_ids, embedder.embed(TEXTS, timeout_s=1), strict=True))
    index.publish([made])
    return build_search(
        settings(address, **more), index=index, embedder=embedder, breakers=InMemoryBreakers()
    )


@pytest.fixture
def search(build: Build) -> SearchCorpus:
    return build()


def asked(search: SearchCorpus, **more: Any) -> SearchResponse:
    return search(CALLER, SearchRequest(query="alpha harbour", **more))


def texts(answer: SearchResponse) -> list[str]:
    return [hit.text for hit in answer.results]


def test_the_results_are_in_its_order_and_have_its_scores(search: SearchCorpus, endpoint: Endpoint) -> None:
    answer = asked(search, explain=True)
    assert (texts(answer)[:2], answer.reranked) == (["gamma harbour", "beta harbour"], True)
    assert [hit.score for hit in answer.results] == [1.0, 0.5, 1e-6, 1e-6]
    assert [hit.explain and hit.explain.relevance for hit in answer.results] == [1.0, 0.5, 0.0, 0.0]
    (body,) = endpoint.asked
    assert (body["model"], body["query"], body["top_n"]) == ("judge", "alpha harbour", len(TEXTS))
    assert sorted(body["documents"]) == sorted(f"Guide\n{text}" for text in TEXTS)
    assert endpoint.keys == ["Bearer key"]


def test_pages_are_parts_of_its_order(search: SearchCorpus, endpoint: Endpoint) -> None:
    whole = texts(asked(search))
    assert [text for at in range(4) for text in texts(asked(search, offset=at, top_k=1))] == whole
    assert {len(body["documents"]) for body in endpoint.asked} == {len(TEXTS)}


def test_what_pages_reach_is_reranked_and_no_more(search: SearchCorpus, endpoint: Endpoint) -> None:
    many = [f"harbour number {number}" for number in range(REACHABLE + 50)]
    assert isinstance(search.index, InMemoryVectorIndex)
    made = version(many, 2, space=search.embedder.space)
    made.vectors.update(zip(made.chunk_ids, search.embedder.embed(many, timeout_s=1), strict=True))
    search.index.publish([made])
    assert len(asked(search, top_k=100, offset=100).results) == 100
    assert len(endpoint.asked[0]["documents"]) == REACHABLE


def test_scores_that_are_logits_become_shares(search: SearchCorpus, endpoint: Endpoint) -> None:
    endpoint.score = lambda text: 3.0 if "beta" in text else -1000.0
    assert [hit.score for hit in asked(search).results] == [pytest.approx(0.9526, abs=1e-4), 1e-6, 1e-6, 1e-6]


@pytest.mark.parametrize(
    "wrong",
    [
        {"status": 500},
        {"status": 401},
        {"status": 302},
        {"raw": "no json"},
        {"raw": "{}"},
        {"raw": '{"results": [{"index": 0, "relevance_score": 1.0}]}'},
        {"raw": '{"results": [{"index": 0, "relevance_score": "much"}]}'},
        {"raw": " " * 200_000},
        {"score": lambda text: float("nan")},
        {"hangs": True},
    ],
    ids=["500", "401", "302", "no json", "nothing", "one", "words", "large", "nan", "hangs"],
)
def test_without_an_answer_the_order_is_that_of_the_lists(
    endpoint: Endpoint, build: Build, wrong: dict[str, Any]
) -> None:
    search = build(RERANK_SECONDS="0.3")
    for name, value in wrong.items():
        setattr(endpoint, name, value)
    began = time.monotonic()
    answer = asked(search)
    assert time.monotonic() - began < 5
    plain = asked(search, rerank=False)
    assert (answer.reranked, plain.reranked) == (False, None)
    assert [(hit.text, hit.score) for hit in answer.results] == [
        (hit.text, hit.score) for hit in plain.results
    ]
    assert texts(answer)[0] == "alpha harbour"


def test_after_three_failures_it_is_left_alone_for_a_while(endpoint: Endpoint, build: Build) -> None:
    made = build().reranker
    assert isinstance(made, GuardedReranker)
    reranker = GuardedReranker(made._reranker, open_s=0.3)
    endpoint.status = 503
    for _ in range(FAILURES + 2):
        with pytest.raises(NotReranked):
            reranker.rerank("q", ["a"], timeout_s=5)
    assert len(endpoint.asked) == FAILURES
    endpoint.status = 200

    def answered() -> list[float] | None:
        with suppress(NotReranked):
            return reranker.rerank("q", ["gamma"], timeout_s=5)
        return None

    assert eventually(answered, "it is asked again") == [1.0]


def test_a_request_says_whether_it_is_reranked(search: SearchCorpus, endpoint: Endpoint) -> None:
    assert texts(asked(search, rerank=False))[0] == "alpha harbour"
    vector = [1.0] + [0.0] * 7
    assert search(CALLER, SearchRequest(query_embedding=vector)).reranked is None
    assert endpoint.asked == []
    assert asked(search, rerank=True).reranked is True
    bare = SearchCorpus(search.index, search.embedder, search.clock)
    assert bare(CALLER, SearchRequest(query="alpha")).reranked is None
    for refusing, request in (
        (bare, SearchRequest(query="alpha", rerank=True)),
        (search, SearchRequest(query_embedding=vector, rerank=True)),
    ):
        with pytest.raises(CallerError) as raised:
            refusing(CALLER, request)
        assert (raised.value.code, raised.value.field) == (ErrorCode.VALIDATION_ERROR, "body.rerank")
