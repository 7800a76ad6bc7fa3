"""A model that takes too long for a caller who waits: the endpoint's own 504, and no sooner than promised."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import web

from indexmill.contracts.http_embedding import EmbedRequest
from indexmill.embedding.api import write_routes
from indexmill.embedding.settings import EmbeddingReadApiSettings, EmbeddingWriteApiSettings
from indexmill.embedding.wiring import _LIMIT_S, build_search, build_write_use_cases
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time.deadline import request_limit
from tests.support.aiohttp_server import served
from tests.support.embedding_endpoint import Endpoint, good
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.function_env import environment
from tests.support.jobs import CALLER
from tests.twins.chunk_counts import InMemoryChunkCounts


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


@pytest.mark.shows("R026")
def test_a_slow_model_is_our_own_504(endpoint: Endpoint, loop: None) -> None:
    async def hang(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError

    endpoint.answer = hang
    settings = EmbeddingWriteApiSettings.from_environment(variables("EmbeddingWriteApi", endpoint))
    router = write_routes(build_write_use_cases(settings, counts=InMemoryChunkCounts()), 0.3)
    observability = Observability("test", level="CRITICAL")
    handler = lambda_handler(create_app("Test", [router], observability, None), observability)
    event = api_event("POST", "/embedding/embed", caller=caller_claims(), body={"texts": ["words"]})
    answer = handler(event, FakeContext())
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
    """Given less, a slow model would be a 503 before the request has used its time."""
    given = []

    async def note(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        given.append(float(request.headers["x-stainless-read-timeout"]))
        return await good(request, body)

    endpoint.answer = note
    write = EmbeddingWriteApiSettings.from_environment(variables("EmbeddingWriteApi", endpoint))
    read = EmbeddingReadApiSettings.from_environment(variables("EmbeddingReadApi", endpoint))
    api = build_write_use_cases(write, counts=InMemoryChunkCounts())
    api.embed(CALLER, EmbedRequest(texts=["words"]), timeout_s=_LIMIT_S + 1)
    build_search(read).embedder.embed(["words"], timeout_s=_LIMIT_S + 1)
    assert len(given) == 2
    assert min(given) > _LIMIT_S
