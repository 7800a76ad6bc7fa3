"""Backpressure on a running stack with small bounds: each endpoint, each tier, by depth and by age."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import boto3
import httpx
import psycopg
import pytest

from tests.support.stack import RunningStack, eventually, running_stack

pytestmark = pytest.mark.e2e

DEPTH, AGE_S = 10, 20
TIERS = ("free", "pro", "enterprise", "internal")
RATE = 8
KNOWN_S = 5.5
"""Longer than a function believes in the depth that it read."""

Clients = dict[str, httpx.Client]
Probe = Callable[[httpx.Client], httpx.Response]


@pytest.fixture(scope="module")
def narrow() -> Iterator[RunningStack]:
    """Yield a stack in which little may wait."""
    bounds = (f"MaxQueueDepth={DEPTH}", f"MaxQueueAgeSeconds={AGE_S}", "DispatchWindow=2")
    with running_stack(*bounds, f"RateFree={RATE}") as running:
        yield running


@pytest.fixture
def callers(narrow: RunningStack) -> Iterator[Clients]:
    """Yield a client of a caller of each tier, new ones but for the internal one."""
    keys = {tier: narrow.ops_key if tier == "internal" else narrow.new_key(tier) for tier in TIERS}
    clients = {tier: narrow.http(key) for tier, key in keys.items()}
    yield clients
    for client in clients.values():
        client.close()


def enqueue(http: httpx.Client, service: str, count: int = 1) -> None:
    """Queue pages or texts that nothing else has."""
    for _ in range(count):
        url = f"https://site.example/{uuid.uuid4()}"
        body = {"scraper": {"url": url}, "chunking": {"text": "Words."}}
        sent = body.get(service, {"url": url, "texts": ["Words."]})
        assert http.post(f"/{service}/enqueue", json=sent).status_code == 202


def retry_unknown(http: httpx.Client) -> httpx.Response:
    """Ask for what adds no work when it is not refused."""
    return http.post(f"/orchestrator/jobs/{uuid.uuid4()}/retry")


def is_saturated(answer: httpx.Response) -> bool:
    if answer.status_code != 429:
        assert answer.status_code in (404, 422), answer.text
        return False
    error = answer.json()["error"]
    assert error["code"] == "queue_saturated"
    assert error["message"].startswith("Queue saturated (")
    assert error["message"].endswith(" pending). Try again shortly.")
    assert (error["retry_after"], answer.headers["Retry-After"]) == (30, "30")
    return True


def refused(callers: Clients, probe: Probe) -> set[str]:
    """Return the tiers whose request is refused."""
    return {tier for tier, http in callers.items() if is_saturated(probe(http))}


@contextmanager
def paused(stack: RunningStack, stage: str) -> Iterator[None]:
    """Switch a stage off, or all with `*`."""
    with psycopg.connect(stack.database_url, autocommit=True) as database:
        database.execute(
            "INSERT INTO pauses (stage, reason, paused_by) VALUES (%s, 'a test', 'me')", (stage,)
        )
        sweep(stack)
        try:
            yield
        finally:
            database.execute("DELETE FROM pauses")
            sweep(stack)


def sweep(stack: RunningStack) -> None:
    """Run the sweeper once."""
    url = f"{stack.invoke_endpoint}/2015-03-31/functions/OrchestratorSweeper/invocations"
    assert "X-Amz-Function-Error" not in httpx.post(url, json={}, timeout=60.0).headers


def sqs(stack: RunningStack) -> Any:
    """Return a client of the stack's queues."""
    make: Any = boto3.client
    keys = {"aws_access_key_id": stack.account_id, "aws_secret_access_key": "test"}
    return make("sqs", endpoint_url=stack.aws_endpoint, region_name=stack.region, **keys)


def let_pass(seconds: float) -> None:
    """Return when so much time has passed: what a function read before is read again."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() > until, f"{seconds} s have passed", within_s=seconds + 5)


@pytest.mark.fault("F74")
@pytest.mark.shows("R098")
@pytest.mark.shows("R101")
@pytest.mark.shows("L15")
@pytest.mark.shows("C45")
def test_jobs_are_refused_by_what_all_callers_have_waiting(narrow: RunningStack, callers: Clients) -> None:
    filler = callers["enterprise"]
    with paused(narrow, "*"):
        urls = [f"{narrow.site}/{uuid.uuid4()}.html" for _ in range(DEPTH + 1)]
        answer = filler.post("/orchestrator/jobs", json={"urls": urls, "corpus_name": "deep"})
        assert answer.status_code == 202
        ids = answer.json()["job_ids"]

        def drop_to(depth: int) -> None:
            while len(ids) > depth:
                canceled = filler.post(f"/orchestrator/jobs/{ids.pop()}/cancel", json={"reason": "no"})
                assert canceled.status_code == 200

        let_pass(KNOWN_S)
        for path in ("", f"/{ids[0]}/retry", f"/{ids[0]}/replay", "/retry"):
            body = {"url": urls[0]} if not path else {}
            assert refused(
                callers, lambda http, at=path, sent=body: http.post(f"/orchestrator/jobs{at}", json=sent)
            ) == set(TIERS)
        assert callers["enterprise"].get("/orchestrator/jobs").json()["count"] == DEPTH + 1
        drop_to(9)
        let_pass(KNOWN_S)
        assert refused(callers, retry_unknown) == {"free", "pro"}
        drop_to(7)
        let_pass(KNOWN_S)
        assert refused(callers, retry_unknown) == {"free"}
        drop_to(6)
        let_pass(KNOWN_S)
        first = retry_unknown(callers["free"])
        assert first.status_code == 404
        # None of the refused requests was counted against the caller's own limit.
        assert first.headers["X-RateLimit-Remaining"] == str(RATE - 1)
        drop_to(0)


@pytest.mark.fault("F74")
@pytest.mark.shows("R098")
@pytest.mark.shows("R101")
def test_enqueue_is_refused_by_its_own_queue_alone(narrow: RunningStack, callers: Clients) -> None:
    services = {"scraper": "scraping", "chunking": "chunking", "embedding": "embedding"}
    with paused(narrow, "*"):
        for depth, expected in ((7, {"free"}), (9, {"free", "pro"}), (11, set(TIERS))):
            for service in services:
                enqueue(callers["internal"], service, 7 if depth == 7 else 2)
            let_pass(KNOWN_S)
            for service in services:
                found = refused(callers, lambda http, at=service: http.post(f"/{at}/enqueue", json={}))
                assert (service, found) == (service, expected)
        # Messages of the queues are no jobs.
        assert refused(callers, retry_unknown) == set()
        for name in ("ScrapeQueue", "ChunkQueue", "EmbedQueue"):
            sqs(narrow).purge_queue(QueueUrl=narrow.resources[name])


@pytest.mark.long
@pytest.mark.fault("F74")
@pytest.mark.shows("R101")
def test_jobs_are_refused_when_one_waits_too_long_for_capacity(
    narrow: RunningStack, callers: Clients
) -> None:
    ids = []
    for _ in range(3):
        url = f"{narrow.site}/slow?seconds=25&id={uuid.uuid4()}"
        with narrow.http(narrow.new_key("enterprise")) as http:
            ids.append((http.headers["X-API-Key"], http.post("/orchestrator/jobs", json={"url": url})))
    assert [answer.status_code for _, answer in ids] == [202] * 3
    eventually(lambda: is_saturated(retry_unknown(callers["pro"])), "pro is refused", within_s=40)
    assert is_saturated(retry_unknown(callers["free"]))
    eventually(lambda: is_saturated(retry_unknown(callers["internal"])), "all are refused", within_s=20)
    for key, answer in ids:
        with narrow.http(key) as http:
            http.post(f"/orchestrator/jobs/{answer.json()['job_id']}/cancel", json={"reason": "no"})


@pytest.mark.long
@pytest.mark.fault("F74")
@pytest.mark.shows("R101")
def test_enqueue_is_refused_when_messages_wait_too_long(narrow: RunningStack, callers: Clients) -> None:
    def probe(http: httpx.Client) -> bool:
        return is_saturated(http.post("/scraper/enqueue", json={}))

    with paused(narrow, "scraping"):
        for _ in range(5):
            url = f"{narrow.site}/slow?seconds=9&id={uuid.uuid4()}"
            assert callers["internal"].post("/scraper/enqueue", json={"url": url}).status_code == 202
        let_pass(0.8 * AGE_S + 1)
        assert not probe(callers["pro"])
    eventually(lambda: probe(callers["pro"]), "pro is refused", within_s=20)
    assert probe(callers["free"])
