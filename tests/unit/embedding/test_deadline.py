"""A model that takes too long for a caller who waits: the endpoint's own 504, and no sooner than promised."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest
from aiohttp import web
from fastapi import APIRouter

from indexmill.contracts.errors import CallerError, ErrorCode, IndexmillError, TransientError
from indexmill.contracts.http_embedding import EmbedRequest
from indexmill.contracts.http_search import SearchRequest, SearchResponse, SearchResult, SearchTimings
from indexmill.contracts.identity import CorpusIsolation
from indexmill.embedding.api import read_routes, write_routes
from indexmill.embedding.search import SearchCorpus
from indexmill.embedding.settings import EmbeddingReadApiSettings, EmbeddingWriteApiSettings
from indexmill.embedding.wiring import _LIMIT_S, build_search, build_write_use_cases
from indexmill.platform.breakers import EMBEDDING_QUERY
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time import request_limit
from tests.support.aiohttp_server import served
from tests.support.embedding_endpoint import Endpoint, good
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.function_env import environment
from tests.support.jobs import CALLER
from tests.support.stack import eventually
from tests.twins.chunk_counts import InMemoryChunkCounts
from tests.twins.state_table import InMemoryBreakers
from tests.twins.vector_index import InMemoryVectorIndex


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    import openai  # noqa: F401 - the first request would wait for it, within its time limit

    made = Endpoint()
    with served(made.app) as made.address:
        yield made


@pytest.fixture
def loop() -> Iterator[None]:
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    made.run_until_complete(made.shutdown_default_executor())
    asyncio.set_event_loop(None)
    made.close()


def variables(function: str, endpoint: Endpoint) -> dict[str, str]:
    given = {"EMBEDDING_BASE_URL": f"{endpoint.address}/v1", "EMBEDDING_DIMENSION": "4"}
    return {**environment(function), **given, "EMBEDDING_API_KEY": "secret"}


async def hang(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def asked(router: APIRouter, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the function's answer to a caller."""
    observability = Observability("test", level="CRITICAL")
    handler = lambda_handler(create_app([router], observability), observability)
    return handler(api_event("POST", path, caller=caller_claims(), body=body), FakeContext())


def embed_routes(endpoint: Endpoint, breakers: InMemoryBreakers) -> APIRouter:
    settings = EmbeddingWriteApiSettings.from_environment(variables("EmbeddingWriteApi", endpoint))
    api = build_write_use_cases(settings, counts=InMemoryChunkCounts(), breakers=breakers)
    return write_routes(api, 0.3)


@pytest.mark.shows("R026")
def test_a_slow_model_is_our_own_504(endpoint: Endpoint, loop: None) -> None:
    endpoint.answer = hang
    answer = asked(embed_routes(endpoint, InMemoryBreakers()), "/embedding/embed", {"texts": ["words"]})
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"]) == (504, "deadline_exceeded")
    assert error["message"] == "OpenAI round-trip exceeds limit"
    assert "POST /embedding/enqueue" in error["hint"]


@pytest.mark.shows("R026")
@pytest.mark.parametrize(("gateway_s", "limit_s"), [(29, 28), (60, 59), (120, 60), (300, 60)])
def test_the_limit_is_sixty_seconds_and_less_than_the_gateways(gateway_s: float, limit_s: float) -> None:
    assert request_limit(_LIMIT_S, gateway_s) == limit_s


@pytest.mark.shows("R026")
def test_the_model_has_as_long_as_the_caller_waits(endpoint: Endpoint) -> None:
    """Given less, a slow model would be a 503 before the request has used its time. A question has 2 s."""
    given = []

    async def note(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        given.append(float(request.headers["x-stainless-read-timeout"]))
        return await good(request, body)

    endpoint.answer = note
    write = EmbeddingWriteApiSettings.from_environment(variables("EmbeddingWriteApi", endpoint))
    read = EmbeddingReadApiSettings.from_environment(variables("EmbeddingReadApi", endpoint))
    breakers = InMemoryBreakers()
    api = build_write_use_cases(write, counts=InMemoryChunkCounts(), breakers=breakers)
    api.embed(CALLER, EmbedRequest(texts=["words"]), timeout_s=_LIMIT_S + 1)
    search = build_search(read, index=InMemoryVectorIndex(), breakers=breakers)
    assert isinstance(search.index, InMemoryVectorIndex)
    search.index.add_corpus(CorpusIsolation.CALLER.key(CALLER.caller_id, "default"))
    with suppress(TransientError):
        search(CALLER.caller_id, SearchRequest(query="words"))
    of_texts, of_question = given
    assert (of_texts > _LIMIT_S, of_question <= 2) == (True, True)


@pytest.mark.fault("F45")
def test_texts_for_a_model_that_hung_three_times_are_refused_at_once(endpoint: Endpoint, loop: None) -> None:
    endpoint.answer = hang
    breakers, body = InMemoryBreakers(), {"texts": ["words"]}
    router, answers = embed_routes(endpoint, breakers), []
    endpoint.requests.clear()
    for count in (1, 2, 3, 3, 3):
        answers.append(asked(router, "/embedding/embed", body))
        # What the answer did not wait for.
        eventually(lambda: breakers.read()[EMBEDDING_QUERY].failures == count, "its failure is counted")  # noqa: B023
    assert [each["statusCode"] for each in answers] == [504, 504, 504, 503, 503]
    assert len(endpoint.requests) == 3
    assert json.loads(answers[-1]["body"])["error"]["code"] == "embedding_unavailable"
    assert 0 < int(answers[-1]["headers"]["retry-after"]) <= 31


@pytest.mark.shows("R116")
@pytest.mark.parametrize(
    ("asking", "results", "expected"),
    [
        (
            {},
            3,
            {"corpus_name": "default", "mode": "hybrid", "results": 3, "degraded": None, "without_hit": 0},
        ),
        (
            {"mode": "keyword", "corpora": ["a", "b"]},
            0,
            {"corpus_name": "a,b", "mode": "keyword", "without_hit": 1},
        ),
        ({"offset": 10}, 0, {"results": 0, "without_hit": 0}),
    ],
)
def test_a_search_is_an_event_of_the_audit_with_its_results(
    asking: dict[str, Any],
    results: int,
    expected: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    loop: None,
) -> None:
    body = {"query": "words", **asking}

    def search(caller_id: str, request: SearchRequest) -> SearchResponse:
        hits = [SearchResult.model_construct(chunk_id=str(at)) for at in range(results)]
        timings = SearchTimings(embed_ms=2, search_ms=5)
        return SearchResponse.model_construct(
            results=hits, query_ms=7, timings=timings, degraded="embedding" if results == 1 else None
        )

    events: list[tuple[str, dict[str, Any]]] = []
    observability = Observability("embedding", level="CRITICAL")
    monkeypatch.setattr(observability, "emit", lambda event, _ctx, **more: events.append((event, more)))
    asked(read_routes(cast("SearchCorpus", search), observability, 5), "/embedding/search", body)
    [(event, fields)] = events
    assert (event, fields["ms"]) == ("corpus_searched", 7)
    assert {name: fields[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("holds_s", "raises", "status"),
    [
        (0, None, 200),
        (0, TransientError(ErrorCode.SEARCH_UNAVAILABLE, "down"), 503),
        (0, CallerError(ErrorCode.NOT_FOUND, "No such corpus."), 404),
        (60, None, 504),
    ],
)
def test_the_duration_of_each_search_is_measured_of_failed_and_slow_ones_too(
    holds_s: float,
    raises: IndexmillError | None,
    status: int,
    capsys: pytest.CaptureFixture[str],
    loop: None,
) -> None:
    over = threading.Event()

    def search(caller_id: str, request: SearchRequest) -> SearchResponse:
        over.wait(holds_s)
        if raises is not None:
            raise raises
        return SearchResponse(results=[], query_ms=1, timings=SearchTimings(embed_ms=0, search_ms=1))

    observability = Observability("embedding", level="CRITICAL")
    router = read_routes(cast("SearchCorpus", search), observability, 0.3)
    answer = asked(router, "/embedding/search", {"query": "words"})
    over.set()
    written = [line for line in capsys.readouterr().out.splitlines() if "embedding_request_duration" in line]
    (measured,) = map(json.loads, written)
    assert (answer["statusCode"], measured["operation"]) == (status, "read")
    (seconds,) = measured["embedding_request_duration"]
    assert (seconds >= 0.3) == (status == 504)
