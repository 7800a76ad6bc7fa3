"""Calls to the embedding endpoint end in time, and what does not come back stops no other."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from indexmill.contracts.errors import BreakerOpen, ErrorCode, IndexmillError, TransientError
from indexmill.embedding.guarded import _MOST_LEFT, GuardedEmbedder, PunctualEmbedder
from indexmill.embedding.ports import Vector
from indexmill.embedding.settings import EmbeddingReadApiSettings
from indexmill.embedding.wiring import _punctual
from indexmill.platform.breakers import EMBEDDING_QUERY, Breaker
from indexmill.platform.time import SystemClock
from local.backends.embeddings import EmbeddingEndpoint
from local.backends.model_files import DIMENSIONS, MODEL_ID
from local.backends.process import free_port
from local.backends.wordllama_model import WordLlamaModel
from tests.support.aiohttp_server import served
from tests.support.function_env import environment
from tests.twins.clock import FrozenClock
from tests.twins.embedder import HashEmbedder
from tests.twins.state_table import InMemoryBreakers

LIMIT_S = 0.4


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with served(EmbeddingEndpoint(WordLlamaModel.from_wheel()).app()) as address:
        yield address


def punctual(address: str) -> PunctualEmbedder:
    given = {"EMBEDDING_BASE_URL": f"{address}/v1", "EMBEDDING_MODEL": MODEL_ID, "EMBEDDING_API_KEY": "key"}
    given |= {"EMBEDDING_DIMENSION": str(DIMENSIONS)}
    settings = EmbeddingReadApiSettings.from_environment(environment("EmbeddingReadApi") | given)
    made = _punctual(None, settings, SystemClock(), 60)
    assert isinstance(made, PunctualEmbedder)
    return made


def set_mode(endpoint: str, **fault: Any) -> None:
    httpx.post(f"{endpoint}/control", json=fault).raise_for_status()


def error_of(embedder: PunctualEmbedder, timeout_s: float = LIMIT_S) -> tuple[str, bool]:
    """Return the code of a call that fails, and whether that was long before a socket's limit."""
    began = time.monotonic()
    with pytest.raises(TransientError) as caught:
        embedder.embed(["a question"], timeout_s=timeout_s)
    return caught.value.code, time.monotonic() - began < 20


@pytest.mark.fault("F45")
@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_an_endpoint_that_hangs_or_drips_its_headers_has_the_time_of_the_call(
    endpoint: str, mode: str
) -> None:
    embedder = punctual(endpoint)
    set_mode(endpoint, mode=mode)
    assert error_of(embedder) == ("embedding_unavailable", True)
    set_mode(endpoint, mode="ok")
    assert len(embedder.embed(["a question"], timeout_s=30)[0]) == DIMENSIONS


@pytest.mark.fault("F45")
@pytest.mark.parametrize("mode", ["hang", "drip"])
def test_calls_that_an_endpoint_held_stop_no_later_one(endpoint: str, mode: str) -> None:
    """Connections drip still when new ones are answered."""
    embedder = punctual(endpoint)
    set_mode(endpoint, mode=mode)
    for _ in range(_MOST_LEFT + 1):
        assert error_of(embedder, 0.1) == ("embedding_unavailable", True)
    set_mode(endpoint, mode="ok")
    for thread in embedder._punctual._left:
        thread.join(20)
    assert len(embedder.embed(["a question"], timeout_s=30)[0]) == DIMENSIONS


@pytest.mark.fault("F45")
def test_a_port_where_nothing_listens_is_unavailable() -> None:
    assert error_of(punctual(f"http://127.0.0.1:{free_port()}"), 30) == ("embedding_unavailable", True)


@pytest.mark.fault("F45")
def test_a_server_that_takes_no_connection_has_the_time_of_the_call() -> None:
    with ExitStack() as open_:
        full = open_.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        # One more than the queue of connections takes.
        for _ in range(3):
            other = open_.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        address = f"http://127.0.0.1:{full.getsockname()[1]}"
        assert error_of(punctual(address)) == ("embedding_unavailable", True)


@pytest.mark.fault("F45")
def test_a_name_that_is_looked_up_without_end_is_left_behind(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The resolver's own limits are 5 s for each server and try; no time-out of a socket is about them."""
    resolved, real = threading.Event(), socket.getaddrinfo

    def slow(host: Any, *rest: Any, **more: Any) -> Any:
        if host == "slow.example":
            resolved.wait(60)
            raise socket.gaierror(socket.EAI_AGAIN, "no answer")
        return real(host, *rest, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    embedder = punctual(endpoint.replace("127.0.0.1", "slow.example"))
    try:
        assert error_of(embedder) == ("embedding_unavailable", True)
        assert len(punctual(endpoint).embed(["a question"], timeout_s=30)[0]) == DIMENSIONS
    finally:
        resolved.set()


class StuckEmbedder(HashEmbedder):
    """Holds each call whose text is `hold` until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.held = 0

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        if texts == ["hold"]:
            self.held += 1
            self.release.wait(60)
        return super().embed(texts, timeout_s=timeout_s)


@pytest.fixture
def stuck() -> Iterator[StuckEmbedder]:
    made = StuckEmbedder()
    yield made
    made.release.set()


@pytest.mark.fault("F45")
def test_a_call_that_was_left_behind_holds_no_lock_of_its_breaker(stuck: StuckEmbedder) -> None:
    states, clock = InMemoryBreakers(), FrozenClock()
    unavailable = ErrorCode.EMBEDDING_UNAVAILABLE
    breaker = Breaker(EMBEDDING_QUERY, unavailable, [unavailable], states, clock)
    embedder = GuardedEmbedder(PunctualEmbedder(stuck), breaker)
    for _ in range(2):
        with pytest.raises(IndexmillError):
            embedder.embed(["hold"], timeout_s=0.05)
        assert len(embedder.embed(["go"], timeout_s=30)) == 1
    for _ in range(3):
        with pytest.raises(IndexmillError):
            embedder.embed(["hold"], timeout_s=0.05)
    with pytest.raises(BreakerOpen):
        embedder.embed(["go"], timeout_s=30)


@pytest.mark.fault("F45")
def test_calls_that_are_left_behind_are_few(stuck: StuckEmbedder) -> None:
    embedder = PunctualEmbedder(stuck)
    for _ in range(_MOST_LEFT + 3):
        with pytest.raises(TransientError):
            embedder.embed(["hold"], timeout_s=0.02)
    assert stuck.held == _MOST_LEFT
    stuck.release.set()
    for thread in embedder._punctual._left:
        thread.join(30)
    assert len(embedder.embed(["go"], timeout_s=30)) == 1


def test_an_error_of_the_call_is_the_callers(stuck: StuckEmbedder) -> None:
    stuck.fail_next.append(TransientError(ErrorCode.OPENAI_RATE_LIMIT, "slow down", retry_after=9))
    with pytest.raises(TransientError) as caught:
        PunctualEmbedder(stuck).embed(["go"], timeout_s=30)
    assert (caught.value.code, caught.value.retry_after) == ("openai_rate_limit", 9)
