"""The five kinds of 429 on one running stack, apart in code, headers and access log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest

from tests.support.stack import RunningStack, eventually, running_stack

pytestmark = pytest.mark.e2e

PENDING, DEPTH = 100, 150
PARAMETERS = (
    "Edge=waf",
    "EdgeRequestsPerKey=30",
    "EdgeRequestsPerAddress=1000000",
    "RateFree=5",
    "RatePro=600",
    f"MaxPending={PENDING}",
    f"MaxQueueDepth={DEPTH}",
)
LIMITED = "X-RateLimit-Limit"


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningStack]:
    with running_stack(*PARAMETERS) as running:
        yield running


def first_429(ask: Callable[[int], httpx.Response], most: int = 400) -> httpx.Response:
    """Return the first refusal of `most` requests, eight at a time."""
    with ThreadPoolExecutor(8) as pool:
        return next(answer for answer in pool.map(ask, range(most)) if answer.status_code == 429)


def said(answer: httpx.Response) -> tuple[str, bool]:
    """Return the code of a refusal and whether it shows a limit of the caller's own; it says when to come
    back."""
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert answer.headers["Retry-After"] == str(error["retry_after"])
    assert error["retry_after"] >= 1
    assert error["message"]
    return error["code"], LIMITED in answer.headers


@contextmanager
def everything_paused(stack: RunningStack) -> Iterator[None]:
    with psycopg.connect(stack.database_url, autocommit=True) as database:
        database.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('*', 'a test', 'me')")
        try:
            yield
        finally:
            database.execute("DELETE FROM pauses")


def logged(stack: RunningStack, path: str) -> set[tuple[str, str]]:
    """Return the statuses of the refusals of a path, with the gateway's reason, from the access log."""
    lines = (Path(stack.state) / "logs" / "access.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return {
        (str(each["status"]), each["limit_req_status"])
        for each in found
        if each["path"].endswith(path) and str(each["status"]) == "429"
    }


@pytest.mark.shows("L15", "R101")
def test_each_kind_has_its_code_and_headers(narrow: RunningStack) -> None:
    url = f"{narrow.site}/handbook.html"
    with narrow.http(narrow.new_key("free")) as http:
        own = first_429(lambda _: http.post("/embedding/search", json={"corpus_name": "a", "query": "x"}), 20)
    assert said(own) == ("rate_limited", True)

    with narrow.http("") as http:
        # Without a key no limit of a caller counts: the method's own bucket refuses.
        gateway = first_429(lambda _: http.post("/embedding/embed", json={"url": url, "texts": ["x"]}), 1500)
    assert said(gateway) == ("gateway_throttled", False)
    assert gateway.headers["Retry-After"] == "1"

    key = narrow.new_key("enterprise")
    with narrow.http(key) as http:
        firewall = first_429(lambda _: http.get("/orchestrator/limits"), 100)
    assert said(firewall) == ("waf_rate_limited", False)
    assert firewall.headers["Retry-After"] == "60"

    with everything_paused(narrow):
        with narrow.http(narrow.new_key("pro")) as http:
            urls = [f"{url}?n={at}" for at in range(PENDING)]
            accepted = http.post("/orchestrator/jobs", json={"urls": urls, "corpus_name": "kinds"})
            beyond = http.post("/orchestrator/jobs", json={"url": f"{url}?more", "corpus_name": "kinds"})
        assert accepted.status_code == 202
        assert said(beyond) == ("quota_exceeded", True)

        def saturated() -> httpx.Response | None:
            with narrow.http(narrow.new_key("free")) as http:
                answer = http.post("/orchestrator/jobs", json={"url": url, "corpus_name": "kinds"})
            return answer if answer.status_code == 429 else None

        full = eventually(saturated, "the queue is saturated", 60.0)
        assert said(full) == ("queue_saturated", False)
        assert full.headers["Retry-After"] == "30"

    # What the gateway refused itself has its reason; the services' refusals have none.
    assert logged(narrow, "/embedding/embed") == {("429", "THROTTLED")}
    assert logged(narrow, "/embedding/search") == {("429", "-")}
    assert logged(narrow, "/orchestrator/jobs") == {("429", "-")}
    assert {reason for _, reason in logged(narrow, "/orchestrator/limits")} == {"WAF_FILTERED"}
