"""Request limits over HTTP, on a cloud of its own with small ones; on all others nothing is limited."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.faults.control import FaultControl
from local.faults.rules import parse
from tests.support.stack import RunningStack, eventually, running_stack

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

LIMITS = (
    "RateFree=3",
    "RatePro=4",
    "RateEnterprise=40",
    "ReadFactor=5",
    *(
        f"FairShare{name}=capacity=60,floor=4"
        for name in ("Scraper", "Chunking", "Embedding", "Orchestrator")
    ),
    "InternalCidrs=127.0.0.1/32",
)
CLAIMS: dict[str, Any] = {
    "free": {"tier": "free"},
    "patient": {"rate_limits": {"requests": 2, "window_seconds": 3}},
    "apart": {"tier": "pro"},
    "mapped": {"tier": "pro", "rate_limits": {"chunking": {"requests": 1, "window_seconds": 60, "burst": 1}}},
    "wrong": {"rate_limits": {"requests": "many", "window_seconds": 3}},
    "service": {"caller_type": "service", "tier": "free"},
    "outage": {"tier": "pro"},
    "everywhere": {"tier": "enterprise"},
    "newcomer": {},
    "searcher": {},
    **{f"share-{at}": {} for at in range(3)},
}
CHUNK = {"text": "A text."}


@pytest.fixture(scope="module")
def small() -> Iterator[RunningStack]:
    with running_stack(*LIMITS, faults="on") as running:
        keys = Path(running.state) / "membership-keys.json"
        known = json.loads(keys.read_text())
        keys.write_text(json.dumps({**known, **{f"key-{name}": claims for name, claims in CLAIMS.items()}}))
        yield running


def passed(seconds: float) -> None:
    """Return when so much time has passed: what is waited for depends on it alone."""
    until = time.monotonic() + seconds
    eventually(lambda: time.monotonic() >= until, f"{seconds} s have passed")


def chunk(stack: RunningStack, name: str) -> httpx.Response:
    with stack.http(f"key-{name}") as http:
        return http.post("/chunking/chunk", json=CHUNK)


def test_every_answer_tells_the_limit_and_a_refusal_what_it_is(small: RunningStack) -> None:
    answers = [chunk(small, "free") for _ in range(4)]
    assert [each.status_code for each in answers] == [200, 200, 200, 429]
    assert [each.headers["X-RateLimit-Remaining"] for each in answers] == ["2", "1", "0", "0"]
    assert {each.headers["X-RateLimit-Limit"] for each in answers} == {"3"}
    assert {each.headers["X-RateLimit-Reason"] for each in answers} == {"tier"}
    error = answers[-1].json()["error"]
    assert error["code"] == "rate_limited"
    assert answers[-1].headers["Retry-After"] == answers[-1].headers["X-RateLimit-Reset"]
    assert 1 <= error["retry_after"] <= 62
    # A request that the service itself refuses counts and tells the limit, too.
    with small.http("key-mapped") as http:
        bad = http.post("/scraper/enqueue", json={})
    assert (bad.status_code, bad.headers["X-RateLimit-Remaining"]) == (422, "3")


@pytest.mark.shows("L8")
def test_a_request_after_retry_after_is_admitted(small: RunningStack) -> None:
    refused = chunk(small, "patient")
    while refused.status_code == 200:
        refused = chunk(small, "patient")
    assert refused.headers["X-RateLimit-Reason"] == "claims"
    passed(int(refused.headers["Retry-After"]))
    assert chunk(small, "patient").status_code == 200


@pytest.mark.shows("L16")
def test_gets_and_other_services_have_limits_of_their_own(small: RunningStack) -> None:
    while chunk(small, "apart").status_code == 200:
        pass
    with small.http("key-apart") as http:
        listed = [http.get("/orchestrator/jobs") for _ in range(10)]
        assert {each.status_code for each in listed} == {200}
        assert listed[-1].headers["X-RateLimit-Limit"] == "20"
        assert listed[-1].headers["X-RateLimit-Remaining"] == "10"
        submitted = http.post("/orchestrator/jobs", json={"url": f"{small.site}/index.html"})
        assert (submitted.status_code, submitted.headers["X-RateLimit-Remaining"]) == (202, "3")
        found = http.get("/orchestrator/limits").json()
    used = {(each["service"], each["bucket"]): each["used"] for each in found["requests"]}
    assert used["chunking", "work"] == 4
    assert used["orchestrator", "read"] == 11
    assert used["orchestrator", "work"] == 1
    assert used["embedding", "work"] == 0
    assert {each["limit"] for each in found["requests"]} == {4, 20}
    quotas = {each["name"]: (each["limit"], each["used"]) for each in found["jobs"]}
    assert quotas["hour"] == (1200, 1)
    assert found["tier"] == "pro"


def test_claims_by_service_win_over_the_tier_there(small: RunningStack) -> None:
    answers = [chunk(small, "mapped") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert answers[-1].headers["X-RateLimit-Reason"] == "claims"
    with small.http("key-mapped") as http:
        other = http.post("/embedding/search", json={"query": "anything"})
    assert (other.headers["X-RateLimit-Limit"], other.headers["X-RateLimit-Reason"]) == ("4", "tier")


@pytest.mark.fault("F50")
def test_limits_of_a_wrong_type_are_an_outage_of_membership(small: RunningStack) -> None:
    refused = chunk(small, "wrong")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "auth_unavailable")


def test_callers_without_a_tier_share_the_service(small: RunningStack) -> None:
    answers = [chunk(small, f"share-{at}") for at in range(3)]
    assert {each.headers["X-RateLimit-Reason"] for each in answers} == {"fair_share"}
    assert int(answers[0].headers["X-RateLimit-Limit"]) <= 90
    # What each process knows of the others is five seconds old at most.
    passed(5.1)
    assert {chunk(small, f"share-{at}").headers["X-RateLimit-Limit"] for at in range(3)} == {"30"}


@pytest.mark.shows("L13")
def test_the_internal_pool_is_apart_and_reports_of_stages_are_not_limited(small: RunningStack) -> None:
    with small.http(small.ops_key) as http:
        own = http.post("/chunking/chunk", json=CHUNK)
        report = http.post("/orchestrator/jobs/00000000-0000-4000-8000-000000000000/complete", json={})
    assert (own.headers["X-RateLimit-Limit"], own.headers["X-RateLimit-Reason"]) == ("80", "internal")
    assert report.status_code in (404, 422)
    assert "X-RateLimit-Limit" not in report.headers
    by_type = chunk(small, "service")
    assert (by_type.headers["X-RateLimit-Limit"], by_type.headers["X-RateLimit-Reason"]) == ("80", "internal")


@pytest.mark.shows("L14")
@pytest.mark.fault("F58")
def test_without_the_store_each_process_limits_by_itself(small: RunningStack) -> None:
    control = FaultControl(Path(small.state) / "faults")
    operations = ("UpdateItem@door", "BatchGetItem")
    control.arm([parse(f"OrchestratorApi/dynamodb.{each}:error#1x10000") for each in operations])
    try:
        with small.http("key-outage") as http:
            answers = [
                http.post("/orchestrator/jobs", json={"url": f"{small.site}/index.html"}) for _ in range(6)
            ]
    finally:
        control.arm()
    codes = [each.status_code for each in answers]
    assert codes == [202] * 4 + [429] * 2
    assert {each.headers["X-RateLimit-Reason"] for each in answers} == {"local"}
    passed(2)
    with small.http("key-outage") as http:
        after = [http.post("/orchestrator/jobs", json={"url": f"{small.site}/index.html"}) for _ in range(6)]
    assert [each.status_code for each in after] == [202] * 4 + [429] * 2
    assert {each.headers["X-RateLimit-Reason"] for each in after} == {"tier"}


def test_every_service_is_behind_the_guard(small: RunningStack) -> None:
    calls = {
        "/scraper/scrape": {"url": f"{small.site}/index.html"},
        "/scraper/enqueue": {},
        "/chunking/chunk": CHUNK,
        "/chunking/enqueue": {},
        "/embedding/embed": {"texts": ["a"]},
        "/embedding/enqueue": {},
        "/embedding/search": {"query": "a"},
        "/orchestrator/jobs/retry": {},
    }
    with small.http("key-everywhere") as http:
        for path, body in calls.items():
            assert http.post(path, json=body).headers.get("X-RateLimit-Limit") == "40", path
            # Each function counts an active caller of its own.
            newcomer = "searcher" if path == "/embedding/search" else "newcomer"
            by_share = http.post(path, json=body, headers={"X-API-Key": f"key-{newcomer}"})
            assert by_share.headers.get("X-RateLimit-Reason") == "fair_share", path
        job = http.post("/orchestrator/jobs", json={"url": f"{small.site}/index.html"}).json()["job_id"]
        assert http.get(f"/orchestrator/jobs/{job}/stream").headers["X-RateLimit-Limit"] == "200"
        token = http.post(f"/orchestrator/jobs/{job}/stream-token").json()["token"]
    with small.http("") as http:
        streamed = http.get(f"/orchestrator/jobs/{job}/stream", params={"token": token})
    assert streamed.headers["X-RateLimit-Reason"] == "fair_share"
