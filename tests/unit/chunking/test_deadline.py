"""A text that takes too long to split: the endpoint's own 504."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest

from indexmill.chunking.api import ChunkingApi, routes
from indexmill.chunking.enqueue import EnqueueChunk
from indexmill.chunking.ports import Marks
from indexmill.chunking.wiring import _LIMIT_S
from indexmill.chunking.worker import ChunkDocuments
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.observability import Observability
from indexmill.platform.time import request_limit
from tests.support.events import FakeContext, api_event, caller_claims
from tests.twins.blobs import InMemoryBlobs
from tests.twins.queues import InMemoryQueue
from tests.twins.tokenizer import WordTokenizer


class SlowTokenizer(WordTokenizer):
    """Takes as long as it is let."""

    def __init__(self, may_end: threading.Event) -> None:
        self._may_end = may_end

    def marks(self, text: str) -> Marks:
        self._may_end.wait(20)
        return super().marks(text)


@pytest.fixture
def may_end() -> Iterator[threading.Event]:
    loop, event = asyncio.new_event_loop(), threading.Event()
    asyncio.set_event_loop(loop)
    yield event
    event.set()
    loop.run_until_complete(loop.shutdown_default_executor())
    asyncio.set_event_loop(None)
    loop.close()


@pytest.mark.shows("R025")
def test_a_pathological_document_is_our_own_504(may_end: threading.Event) -> None:
    blobs, observability = InMemoryBlobs(), Observability("test", level="CRITICAL")
    api = ChunkingApi(ChunkDocuments(SlowTokenizer(may_end), blobs), EnqueueChunk(InMemoryQueue(), blobs))
    handler = lambda_handler(create_app([routes(api, 0.3)], observability), observability)
    event = api_event("POST", "/chunking/chunk", caller=caller_claims(), body={"text": "Some words."})
    answer = handler(event, FakeContext())
    error = json.loads(answer["body"])["error"]
    assert (answer["statusCode"], error["code"]) == (504, "deadline_exceeded")
    assert error["message"] == "Document pathologically large"
    assert "POST /orchestrator/jobs" in error["hint"]


@pytest.mark.shows("R025")
@pytest.mark.parametrize(("gateway_s", "limit_s"), [(29, 10), (6, 5)])
def test_the_limit_is_ten_seconds_and_less_than_the_gateways(gateway_s: float, limit_s: float) -> None:
    assert request_limit(_LIMIT_S, gateway_s) == limit_s
