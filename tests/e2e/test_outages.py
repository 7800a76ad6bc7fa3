"""Killed parts are restarted, and no accepted job is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from indexmill.client import ApiError, Client, WaitTimeout
from indexmill.contracts.job import Job
from tests.support import openapi
from tests.support.stack import RunningStack, eventually, index

pytestmark = pytest.mark.e2e

CORPUS = "outages"
PAGE = "/collections/bookboat.html"


@pytest.fixture
def rough_client(rough_stack: RunningStack) -> Iterator[Client]:
    """Yield a client of the stack on which things are broken; the stand-ins are well again afterwards."""
    try:
        with rough_stack.client() as opened:
            yield opened
    finally:
        for stand_in in ("membership", "embeddings"):
            rough_stack.set_fault_mode(stand_in, mode="ok")


def accepted(caller: httpx.Client, url: str) -> str | None:
    """Return the id of a submitted job, None while the service answers that it is unavailable."""
    answer = caller.post("/orchestrator/jobs", json={"url": url, "corpus_name": CORPUS})
    assert answer.status_code in (202, 503), answer.text
    assert openapi.problems("/orchestrator/jobs", answer) == []
    return str(answer.json()["job_id"]) if answer.status_code == 202 else None


def known(stack: RunningStack) -> bool:
    """Return whether a request with the first caller's key was answered; a cold start may take too long."""
    with stack.http() as caller:
        return caller.get("/orchestrator/jobs").status_code == 200


def kill(stack: RunningStack, service: str) -> None:
    """Kill a backend; return when it serves again."""
    before = stack.status()["services"][service]
    os.kill(before["pid"], signal.SIGKILL)

    def is_back() -> bool:
        now = stack.status()["services"][service]
        return bool(
            now["restarts"] == before["restarts"] + 1 and now["serving"] and now["pid"] != before["pid"]
        )

    eventually(is_back, f"{service} serves again")


def swept(stack: RunningStack, client: Client, job_id: str) -> Job | None:
    """Return the job if it ends. A breaker may have opened by chance; then the next sweep resumes work."""
    stack.disturb("OrchestratorSweeperEveryMinute", fire=True)
    try:
        return client.wait([job_id], 5)[0]
    except WaitTimeout:
        return None


@pytest.mark.fault("F47")
def test_known_keys_work_while_membership_is_unavailable(
    rough_stack: RunningStack, rough_client: Client
) -> None:
    eventually(lambda: known(rough_stack), "the key is known")
    rough_stack.set_fault_mode("membership", mode="down")
    with rough_stack.http(rough_stack.other_api_key) as unknown:
        answer = unknown.get("/orchestrator/jobs")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (503, "auth_unavailable")
        assert answer.headers["Retry-After"] == str(error["retry_after"])
        assert index(rough_client, rough_stack.site + PAGE, CORPUS).status == "done"
        rough_stack.set_fault_mode("membership", mode="ok")
        assert unknown.get("/orchestrator/jobs").status_code == 200


@pytest.mark.fault("F47")
def test_membership_has_three_seconds_of_rest_after_three_failures(
    rough_stack: RunningStack, rough_client: Client
) -> None:
    """One request at a time goes to one authorizer; the keys are new ones, about which it has to ask."""

    def asked(key: str) -> tuple[int, int]:
        """Return the status, and how often Membership was asked."""
        before = rough_stack.stand_in_state("membership")["calls"]
        with rough_stack.http(key) as caller:
            status = caller.get("/orchestrator/jobs").status_code
        return status, rough_stack.stand_in_state("membership")["calls"] - before

    eventually(lambda: asked("unknown-0") == (401, 1), "Membership is asked")
    rough_stack.set_fault_mode("membership", mode="500")
    assert [asked(f"unknown-{at}") for at in range(1, 6)] == [(503, 1)] * 3 + [(503, 0)] * 2
    eventually(lambda: asked("unknown-6") == (503, 1), "one request probes")
    assert asked("unknown-7") == (503, 0)
    rough_stack.set_fault_mode("membership", mode="ok")
    eventually(lambda: asked("unknown-8") == (401, 1), "a probe closes the breaker")
    assert asked("unknown-9") == (401, 1)


def test_a_job_waits_while_nothing_can_be_embedded(rough_stack: RunningStack, rough_client: Client) -> None:
    rough_stack.set_fault_mode("embeddings", mode="503")
    asked = rough_stack.stand_in_state("embeddings")["requests"]
    job_id = rough_client.submit(f"{rough_stack.site}/visit/opening-hours.html", CORPUS).job_id
    eventually(lambda: rough_stack.stand_in_state("embeddings")["requests"] > asked, "the endpoint was asked")
    eventually(lambda: rough_client.get(job_id).status == "embedding", "its vectors are waited for")
    rough_stack.set_fault_mode("embeddings", mode="ok")
    job = eventually(lambda: swept(rough_stack, rough_client, job_id), "the job goes on", 60)
    assert (job.status, job.attempt) == ("done", 1)
    assert job.document_id in {
        hit.document_id for hit in rough_client.search("opening hours", CORPUS).results
    }


@pytest.mark.shows("B68")
@pytest.mark.parametrize("mode", ["hang", "drip", "503", "401"])
def test_searches_are_answered_by_keywords_while_nothing_can_be_embedded(
    rough_stack: RunningStack, rough_client: Client, mode: str
) -> None:
    assert index(rough_client, rough_stack.site + PAGE, CORPUS).status == "done"
    rough_stack.set_fault_mode("embeddings", mode=mode)
    asked = {"corpus_name": CORPUS}

    def searched(**more: Any) -> httpx.Response:
        with rough_stack.http() as caller:
            answer = caller.post("/embedding/search", json=asked | more)
        assert openapi.problems("/embedding/search", answer) == []
        return answer

    def degraded() -> httpx.Response | None:
        # A question that was answered before needs no endpoint.
        answer = searched(query=f"barge {uuid4().hex}")
        assert answer.status_code == 200, answer.text
        return answer if answer.json()["degraded"] == "embedding" else None

    found = eventually(degraded, "a question is not embedded").json()["results"]
    assert rough_stack.site + PAGE in {hit["source_url"] for hit in found}
    for refused in (
        searched(query="xylophone"),
        searched(query=f"barge {uuid4().hex}", allow_degraded=False),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "embedding_unavailable")
        assert refused.headers["Retry-After"] == str(refused.json()["error"]["retry_after"])
    vector = [1.0] + [0.0] * (int(rough_stack.parameters["EmbeddingDimension"]) - 1)
    assert searched(query_embedding=vector).json()["degraded"] is None


@pytest.mark.parametrize(
    "service",
    ["embeddings", "aws", pytest.param("postgres", marks=pytest.mark.fault("F29")), "membership", "site"],
)
def test_a_backend_that_was_killed_is_started_again(
    rough_stack: RunningStack, rough_client: Client, service: str
) -> None:
    before = index(rough_client, rough_stack.site + PAGE, CORPUS)
    kill(rough_stack, service)
    with rough_stack.http() as caller:
        job_id = eventually(lambda: accepted(caller, rough_stack.site + PAGE), "a job is accepted")
    (job,) = rough_client.wait([job_id], 60)
    assert (job.status, job.chunk_count) == ("done", before.chunk_count)
    assert rough_client.get(before.job_id) == before

    def whole() -> set[str] | None:
        """Return what is found; None while questions are not embedded: the endpoint is probed every 30 s."""
        try:
            found = rough_client.search(f"boat {uuid4().hex}", CORPUS, 1)
        except ApiError as error:
            if error.code != "embedding_unavailable":
                raise
            return None
        return {hit.document_id for hit in found.results} if found.degraded is None else None

    assert eventually(whole, "questions are embedded again", 45) == {before.document_id}


def test_a_page_that_fails_for_a_moment_is_tried_again(
    rough_stack: RunningStack, rough_client: Client
) -> None:
    better, never = f"{rough_stack.site}/flaky/better?fails=2", f"{rough_stack.site}/status/503"
    jobs = rough_client.wait(rough_client.submit([better, never], CORPUS).job_ids or (), 60)
    ended: dict[str, Any] = {job.url: job for job in jobs}
    assert (ended[better].status, ended[better].title) == ("done", "A page that got better")
    error = ended[never].error
    assert (error.stage, error.code, error.cause, error.attempts) == (
        *("scraping", "max_retries_exceeded", "http_503", 4),
    )
    assert error.message == "Scraping failed after 3 retries"
    assert ended[never].user_message == "The site answered with an error (503). Try again later."
