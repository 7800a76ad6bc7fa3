"""Quotas, budgets and backpressure of callers of every tier, on a running stack with small limits."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from indexmill.client import Client
from tests.support.stack import RunningStack, eventually, running_stack

pytestmark = pytest.mark.e2e

STARTS = 3
TIER_BYTES = 900_000


@pytest.fixture(scope="module")
def small() -> Iterator[RunningStack]:
    """Yield a stack whose callers may use little."""
    quotas = ("QuotaFree=chunks_per_day=10", f"QuotaPro=max_per_hour={STARTS}")
    with running_stack(*quotas, f"QuotaEnterprise=job_bytes={TIER_BYTES}") as running:
        yield running


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.shows("S9")
@pytest.mark.shows("R154")
def test_cancel_and_retry_in_a_loop_start_no_more_than_the_quota(small: RunningStack) -> None:
    with Client(small.gateway, small.new_key("pro")) as client:
        job_id = client.submit(f"{small.site}/slow?seconds=20&id={uuid.uuid4()}", "looped").job_id
        for _ in range(2 * STARTS):
            client.cancel(job_id, "again")
            job = client.retry(job_id)
        assert (job.status, job.attempt) == ("pending", 2 * STARTS + 1)
        assert job.waiting is not None
        assert job.waiting.reason == "quota_hourly"
        history = client.history(job_id)
        assert sum(entry.cause == "admitted" for entry in history.entries) == STARTS
        client.cancel(job_id, "enough")


@pytest.mark.shows("S9")
def test_standalone_embedding_uses_up_the_chunks_of_the_day(small: RunningStack) -> None:
    url = f"https://site.example/{uuid.uuid4()}"
    with small.http(small.new_key("free")) as http:
        assert http.post("/embedding/embed", json={"texts": ["a"] * 3}).status_code == 200
        assert http.post("/embedding/enqueue", json={"texts": ["a"] * 4, "url": url}).status_code == 202
        refused = http.post("/embedding/enqueue", json={"texts": ["a"] * 4, "url": url})
        assert code(refused) == (429, "quota_exceeded")
        assert refused.json()["error"]["field"] == "body.texts"
        assert 0 < int(refused.headers["Retry-After"]) <= 86_400
        assert http.post("/embedding/embed", json={"texts": ["a"] * 3}).status_code == 200
        assert code(http.post("/embedding/embed", json={"texts": ["a"]})) == (429, "quota_exceeded")


@pytest.mark.shows("S9")
def test_a_job_over_its_budget_fails_with_its_code(small: RunningStack) -> None:
    page = {"url": f"{small.site}/workshops/bindery.html", "corpus_name": "bounded"}
    with small.http(small.new_key("enterprise")) as http:
        over = {"max_chunks": 10_000, "max_cost_usd": 0.5}
        ids = [
            http.post("/orchestrator/jobs", json={**page, "force": True, "budget": budget}).json()["job_id"]
            for budget in ({"max_bytes": 20}, {"max_chunks": 1}, over)
        ]
        jobs = [eventually(lambda one=one: ended(http, one), f"{one} has ended") for one in ids]  # type: ignore[misc]
        assert [job["status"] for job in jobs] == ["failed", "failed", "done"]
        assert [job["error"]["code"] for job in jobs[:2]] == ["budget_exceeded"] * 2
        assert [job["failed_stage"] for job in jobs[:2]] == ["scraping", "chunking"]
        assert [job["retryable"] for job in jobs[:2]] == [False, False]
        assert jobs[2]["budget"] == {**over, "max_bytes": TIER_BYTES}
        bad = {**page, "budget": {"max_chunks": 0}}
        assert http.post("/orchestrator/jobs", json=bad).json()["error"]["field"] == "body.budget.max_chunks"


def ended(http: httpx.Client, job_id: str) -> dict[str, Any] | None:
    job: dict[str, Any] = http.get(f"/orchestrator/jobs/{job_id}").json()
    return job if job["status"] in ("done", "failed") else None
