"""Deadlines of synchronous requests: our own 504, a second before the gateway's."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest

from tests.support import openapi
from tests.support.stack import RunningStack

pytestmark = pytest.mark.e2e

GATEWAY_S = 6.0
"""IntegrationTimeoutSeconds of the stack."""
EMBED: dict[str, Any] = {"texts": ["plain words"], "url": "https://a.example/", "corpus_name": "slow"}
SEARCH: dict[str, Any] = {"query": "words", "corpus_name": "slow"}


@pytest.fixture(scope="module")
def caller(rough_stack: RunningStack) -> Iterator[httpx.Client]:
    """Yield the first caller; every function is warm, and the corpus has a document."""
    with rough_stack.http() as opened:
        assert opened.post("/embedding/embed", json=EMBED).status_code == 200
        assert opened.post("/embedding/search", json=SEARCH).status_code == 200
        assert opened.get("/orchestrator/jobs").status_code == 200
        yield opened


@contextlib.contextmanager
def locked(stack: RunningStack, table: str) -> Iterator[None]:
    """Hold a table, so that every statement about it waits."""
    with psycopg.connect(stack.database_url) as session:
        session.execute(f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")
        yield


def too_slow(answer: httpx.Response, path: str, message: str) -> None:
    """Check that the answer is ours: the gateway's own has another message."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["message"]) == (504, "deadline_exceeded", message)
    assert error["hint"]
    assert answer.headers["Retry-After"] == str(error["retry_after"])
    assert openapi.problems(path, answer) == []


@pytest.mark.shows("B68", "R026")
@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("/embedding/embed", {"texts": ["other words"]}, "OpenAI round-trip exceeds limit"),
    ],
)
def test_a_slow_model_is_our_own_504(
    rough_stack: RunningStack, caller: httpx.Client, path: str, body: dict[str, Any], message: str
) -> None:
    rough_stack.set_fault_mode("embeddings", mode="delay", delay=20)
    try:
        began = time.monotonic()
        answer = caller.post(path, json=body)
        took = time.monotonic() - began
    finally:
        rough_stack.set_fault_mode("embeddings", mode="ok")
    too_slow(answer, path, message)
    assert took >= GATEWAY_S - 1
    assert caller.post(path, json=body).status_code == 200


@pytest.mark.direct
@pytest.mark.parametrize(
    ("path", "body", "table"),
    [
        ("/embedding/search", SEARCH, "chunks"),
        ("/embedding/embed", EMBED, "documents"),
    ],
)
def test_a_slow_index_is_our_own_504(
    rough_stack: RunningStack, caller: httpx.Client, path: str, body: dict[str, Any], table: str
) -> None:
    with locked(rough_stack, table):
        answer = caller.post(path, json=body)
    messages = {"chunks": "The search took too long.", "documents": "OpenAI round-trip exceeds limit"}
    too_slow(answer, path, messages[table])
    assert caller.post(path, json=body).status_code == 200


@pytest.mark.direct
def test_a_slow_database_is_our_own_504(rough_stack: RunningStack, caller: httpx.Client) -> None:
    with locked(rough_stack, "jobs"):
        answer = caller.get("/orchestrator/jobs")
    too_slow(answer, "/orchestrator/jobs", "The request took too long.")
    assert caller.get("/orchestrator/jobs").status_code == 200
