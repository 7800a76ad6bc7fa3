"""A job followed live, on a running stack: by a key, by a token, again after a break, and by too many."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import httpx
import pytest

from indexmill.client import ApiError, Client, StreamReader
from indexmill.contracts.job import Job, JobStatus
from tests.support import openapi
from tests.support.stack import RunningStack, eventually, index

pytestmark = pytest.mark.e2e

CORPUS = "stream"
ORDER = list(JobStatus)[:-1]
LONG_TEXT = "\n\n".join(f"# Part {at}\n\n" + "a b " * 100 for at in range(560))


@pytest.fixture(scope="module")
def done(stack: RunningStack, client: Client) -> Job:
    """Return a job that has ended."""
    return index(client, f"{stack.site}/collections/telescopes.html", CORPUS)


@pytest.fixture
def anonymous(stack: RunningStack) -> Iterator[httpx.Client]:
    """Yield HTTP without a key."""
    with stack.http("") as opened:
        yield opened


def slow_job(stack: RunningStack, client: Client, seconds: float) -> str:
    """Return a job that is scraping for so long."""
    return client.submit(f"{stack.site}/slow?seconds={seconds}", CORPUS).job_id


def path(job_id: str) -> str:
    return f"/orchestrator/jobs/{job_id}/stream"


def events(answer: httpx.Response) -> tuple[list[dict[str, Any]], StreamReader]:
    assert answer.status_code == 200, answer.text
    reader = StreamReader()
    return [json.loads(data) for data in reader.read(answer.text)], reader


def number(reader: StreamReader) -> int:
    return int(reader.last_id.partition(".")[0])


def forwards(jobs: list[Job]) -> bool:
    positions = [ORDER.index(job.status) for job in jobs]
    return positions == sorted(positions) and len(set(positions)) == len(positions)


def test_the_answer_is_an_event_stream_that_is_not_cached(http: httpx.Client, done: Job) -> None:
    answer = http.get(path(done.job_id))
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert "no-store" in answer.headers["cache-control"]
    assert answer.text.startswith("retry: ")
    found, reader = events(answer)
    assert found == [http.get(f"/orchestrator/jobs/{done.job_id}").json()]
    assert re.fullmatch(r"\d+\.\d+\.0", reader.last_id)


def test_a_stream_resumes_after_the_last_event_id_and_ends_with_the_job(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    job_id = slow_job(stack, client, 3)
    first, reader = events(http.get(path(job_id)))
    assert first[-1]["status"] == "scraping"
    began = time.monotonic()
    answer = http.get(path(job_id), headers={"Last-Event-ID": reader.last_id})
    assert 0.2 < time.monotonic() - began < 10
    more, reader_of_more = events(answer)
    assert more[0]["status"] == "chunking"
    assert number(reader_of_more) > number(reader)
    client.wait([job_id], 20)
    rest, last = events(http.get(path(job_id), headers={"Last-Event-ID": reader.last_id}))
    assert [event["status"] for event in rest] == ["chunking", "embedding", "done"]
    over = http.get(path(job_id), headers={"Last-Event-ID": last.last_id})
    assert (over.status_code, over.content) == (204, b"")


def test_a_client_sees_every_step_of_a_job_once(stack: RunningStack, client: Client) -> None:
    seen = list(client.stream(slow_job(stack, client, 1), 30))
    assert [job.status for job in seen] == ["scraping", "chunking", "embedding", "done"]
    failed = list(client.stream(client.submit(f"{stack.site}/lost.html", CORPUS).job_id, 30))
    assert failed[-1].status == "failed"
    assert failed[-1].error is not None
    assert failed[-1].error.code == "http_404"


@pytest.mark.fault("F72")
def test_neither_a_poller_nor_a_stream_sees_a_job_go_back(stack: RunningStack, client: Client) -> None:
    """F72, with both reading the same jobs: no GET shows an earlier status than the stream did before."""
    paths = (
        "/handbook.html",
        "/notes/winter-log.txt",
        "/guides/seed-library.md",
        "/visit/opening-hours.html",
    )

    def follow(url: str) -> tuple[list[Job], list[Job]]:
        polled: list[Job] = []
        over = threading.Event()
        job_id = client.submit(url, CORPUS).job_id

        def poll() -> None:
            with stack.client() as own:
                while not over.is_set():
                    polled.append(own.get(job_id))
                polled.append(own.get(job_id))

        poller = threading.Thread(target=poll)
        poller.start()
        streamed = []
        try:
            with stack.client() as own:
                for job in own.stream(job_id, 40):
                    streamed.append(job)
                    assert ORDER.index(own.get(job_id).status) >= ORDER.index(job.status)
        finally:
            over.set()
            poller.join(20)
        return streamed, polled

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(follow, [stack.site + each for each in paths]))
    for streamed, polled in found:
        assert streamed[-1].status == "done"
        assert forwards(streamed)
        positions = [ORDER.index(job.status) for job in polled]
        assert positions == sorted(positions)
        assert polled[-1].status == "done"


def test_a_token_opens_its_jobs_stream_and_nothing_else(
    http: httpx.Client, anonymous: httpx.Client, done: Job, stack: RunningStack, client: Client
) -> None:
    answer = http.post(f"/orchestrator/jobs/{done.job_id}/stream-token")
    assert answer.status_code == 200
    assert openapi.problems("/orchestrator/jobs/{job_id}/stream-token", answer) == []
    granted = answer.json()
    assert events(httpx.get(granted["url"]))[0][0]["job_id"] == done.job_id
    assert granted["url"].startswith("http://127.0.0.1:")
    token = {"token": granted["token"]}
    other = index(client, f"{stack.site}/events/", CORPUS)
    for place in (path(other.job_id), f"/orchestrator/jobs/{done.job_id}", "/orchestrator/jobs"):
        refused = anonymous.get(place, params=token)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key"), place


@pytest.mark.parametrize("query", ["", "?token=", "?token=a.b", "?token=%00"])
def test_without_a_key_or_a_token_a_stream_is_refused(anonymous: httpx.Client, done: Job, query: str) -> None:
    refused = anonymous.get(path(done.job_id) + query)
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    wrong = anonymous.get(path(done.job_id), headers={"X-API-Key": "key-of-nobody"})
    assert wrong.status_code == 401


def test_a_changed_token_is_refused(http: httpx.Client, anonymous: httpx.Client, done: Job) -> None:
    token = http.post(f"/orchestrator/jobs/{done.job_id}/stream-token").json()["token"]
    body, _, mac = token.partition(".")
    for changed in (f"{body}.{mac[:-2]}AA", f"{body[:-1]}A.{mac}", body, f"{body}."):
        assert anonymous.get(path(done.job_id), params={"token": changed}).status_code == 401


@pytest.mark.shows("S1")
def test_another_callers_job_is_404_for_the_stream_and_for_its_token(stack: RunningStack, done: Job) -> None:
    with stack.http(stack.other_api_key) as other:
        for answer in (other.get(path(done.job_id)), other.post(f"{path(done.job_id)}-token")):
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    with stack.second_client() as client, pytest.raises(ApiError, match="not_found"):
        list(client.stream(done.job_id, 10))


def places(stack: RunningStack) -> int:
    """Return how many streams are waiting."""
    make: Any = boto3.client
    table = make(
        "dynamodb",
        endpoint_url=stack.aws_endpoint,
        region_name=stack.region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    key = {"pk": {"S": "stream-windows"}}
    item = table.get_item(TableName=stack.resources["StateTable"], Key=key, ConsistentRead=True).get(
        "Item", {}
    )
    return len(item.get("places", {}).get("SS", ()))


def test_one_stream_too_many_gets_a_retry_time(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    limit = int(stack.parameters["StreamWindows"])
    job_id = slow_job(stack, client, 8)
    last_id = events(http.get(path(job_id)))[1].last_id
    resumed = {"Last-Event-ID": last_id}
    eventually(lambda: places(stack) == 0, "no stream waits any more")
    with ThreadPoolExecutor(limit) as pool:
        waiting = [pool.submit(http.get, path(job_id), headers=resumed) for _ in range(limit)]
        eventually(lambda: places(stack) == limit, "all places are taken", 7)
        began = time.monotonic()
        found, reader = events(http.get(path(job_id), headers=resumed))
        assert time.monotonic() - began < 3
        assert ([job["status"] for job in found], reader.retry_s) == (["scraping"], 2.0)
        assert not any(each.done() for each in waiting)
        answers = [each.result(40) for each in waiting]
    assert {events(each)[0][0]["status"] for each in answers} == {"chunking"}
    eventually(lambda: places(stack) == 0, "the places are given back", 5)


def test_a_poller_gets_retry_after_and_not_modified(
    stack: RunningStack, http: httpx.Client, client: Client, done: Job
) -> None:
    job_id = slow_job(stack, client, 2)
    answer = http.get(f"/orchestrator/jobs/{job_id}")
    assert answer.headers["Retry-After"] == "1"
    known = {"If-None-Match": answer.headers["ETag"]}
    again = http.get(f"/orchestrator/jobs/{job_id}", headers=known)
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", answer.headers["ETag"])
    client.wait([job_id], 20)
    changed = http.get(f"/orchestrator/jobs/{job_id}", headers=known)
    assert (changed.status_code, changed.json()["status"]) == (200, "done")
    assert "Retry-After" not in http.get(f"/orchestrator/jobs/{done.job_id}").headers


def test_a_long_document_shows_how_far_it_is(rough_stack: RunningStack) -> None:
    """On the stack that is short of time: its windows last half a second, so the stream is many answers."""
    with rough_stack.client() as client, rough_stack.http(rough_stack.ops_key) as ops:
        job_id = slow_job(rough_stack, client, 60)
        rough_stack.set_fault_mode("embeddings", mode="ok", delay=1.0)
        try:
            report = {"stage": "scraping", "status": "success", "result": {"text": LONG_TEXT}}
            ops.post(f"/orchestrator/jobs/{job_id}/complete", json=report).raise_for_status()
            seen = list(client.stream(job_id, 60))
        finally:
            rough_stack.set_fault_mode("embeddings", mode="ok", delay=0.0)
    assert seen[-1].status == "done"
    assert seen[-1].progress.chunks_total is None
    shown = [job.progress for job in seen if job.progress.chunks_done]
    assert [progress.chunks_done for progress in shown] == [256, 512]
    assert {progress.chunks_total for progress in shown} == {seen[-1].chunk_count}
    assert 0 < (shown[0].bytes or 0) < (shown[1].bytes or 0)
