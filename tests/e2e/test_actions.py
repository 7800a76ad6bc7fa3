"""Job actions of callers, on a running stack."""

from __future__ import annotations

import json
import threading
import uuid

import httpx
import pytest

from indexmill.client import ApiError, Client
from indexmill.contracts.job import Job
from tests.support import openapi
from tests.support.stack import RunningStack, eventually, index, indexmill

pytestmark = pytest.mark.e2e

CORPUS = "actions"
PAGE = "/workshops/bindery.html"


def slow(stack: RunningStack, seconds: int = 2) -> str:
    """Return the URL of a slow page that no other test has."""
    return f"{stack.site}/slow?seconds={seconds}&id={uuid.uuid4()}"


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.fixture(scope="module")
def canceled(stack: RunningStack, client: Client) -> Job:
    """Return a job that was stopped while its page was loading."""
    return client.cancel(client.submit(slow(stack), CORPUS).job_id, "the wrong page")


@pytest.mark.shows("B73")
def test_a_canceled_job_stays_canceled_and_is_not_found(client: Client, canceled: Job) -> None:
    assert canceled.error is not None
    reported = (canceled.status, canceled.error.code, canceled.error.message, canceled.user_message)
    assert reported == ("failed", "canceled", "the wrong page", "Job canceled")
    assert client.get(canceled.job_id) == canceled
    assert client.cancel(canceled.job_id, "again") == canceled
    assert canceled.job_id in {job.job_id for job in client.list(code="canceled", corpus_name=CORPUS).jobs}


def test_a_canceled_job_is_retried_and_done(stack: RunningStack, client: Client) -> None:
    job_id = client.submit(slow(stack, 1), "retried").job_id
    client.cancel(job_id, "a mistake")
    again = client.retry(job_id)
    assert (again.job_id, again.attempt, again.error) == (job_id, 2, None)
    (job,) = client.wait([job_id], 40)
    assert (job.status, job.attempt) == ("done", 2)
    assert len(client.search("slow page", "retried").results) == job.chunk_count


def test_failed_jobs_are_retried_by_what_they_have_in_common(stack: RunningStack, client: Client) -> None:
    lost = [f"{stack.site}/lost-{number}.html" for number in range(2)]
    batch = client.submit(lost, "bulk")
    jobs = client.wait(batch.job_ids or (), 40)
    assert {job.retryable for job in jobs} == {False}
    assert client.retry_all(corpus_name="bulk").retried == []
    report = client.retry_all(batch_id=batch.batch_id, code="http_404")
    assert (set(report.retried), report.more) == (set(batch.job_ids or ()), False)
    assert {job.attempt for job in client.wait(report.retried, 40)} == {2}


def test_a_replay_makes_the_same_and_reports_it(stack: RunningStack, client: Client) -> None:
    original = index(client, stack.site + PAGE, "replayed")
    before = client.search("paste", "replayed", 100).results
    for stored in (False, True):
        replay = client.replay(original.job_id, stored=stored)
        assert (replay.replay_of, replay.priority) == (original.job_id, 100)
        (job,) = client.wait([replay.job_id], 40)
        assert (job.status, job.title, job.chunk_count) == ("done", original.title, original.chunk_count)
        diff = client.diff(replay.job_id)
        assert (diff.same, {part.verdict for part in diff.parts}) == (True, {"same"})
    assert [hit.chunk_id for hit in client.search("paste", "replayed", 100).results] == [
        hit.chunk_id for hit in before
    ]


@pytest.mark.shows("P058")
def test_stored_content_is_read_without_the_site(stack: RunningStack, client: Client) -> None:
    path = "/flaky/without-site"
    original = index(client, f"{stack.site}{path}?fails=0", "without-site")
    replay = client.replay(original.job_id, stored=True)
    (job,) = client.wait([replay.job_id], 40)
    assert (original.status, job.status) == ("done", "done")
    assert stack.stand_in_state("site")["requests"][path] == 1


@pytest.mark.shows("B74")
def test_a_submit_that_is_sent_twice_happens_once(stack: RunningStack, client: Client) -> None:
    url, key = slow(stack), str(uuid.uuid4())
    first = client.submit(url, CORPUS, idempotency_key=key)
    client.wait([first.job_id], 40)
    assert client.submit(url, CORPUS, idempotency_key=key) == first
    with pytest.raises(ApiError) as refused:
        client.submit(slow(stack), CORPUS, idempotency_key=key)
    assert (refused.value.status, refused.value.code) == (409, "idempotency_conflict")
    assert client.submit(url, CORPUS).job_id != first.job_id


def test_one_key_at_the_same_moment_is_one_job(stack: RunningStack, client: Client) -> None:
    key, url = str(uuid.uuid4()), slow(stack)
    found: list[str] = []

    def submit() -> None:
        with stack.client() as own:
            found.append(own.submit(url, CORPUS, idempotency_key=key, force=True).job_id)

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 4
    assert len(set(found)) == 1
    assert [job.job_id for job in client.list(url=url).jobs] == found[:1]


@pytest.mark.shows("B74")
@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "x" * 300])
def test_a_key_that_cannot_be_one_is_refused(stack: RunningStack, http: httpx.Client, key: str) -> None:
    answer = http.post("/orchestrator/jobs", json={"url": slow(stack)}, headers={"Idempotency-Key": key})
    assert code(answer) == (422, "validation_error")
    assert openapi.problems("/orchestrator/jobs", answer) == []


def test_a_url_in_flight_is_deduplicated(stack: RunningStack, client: Client) -> None:
    url = slow(stack)
    first = client.submit(url, CORPUS)
    second = client.submit([url, slow(stack, 0)], CORPUS)
    assert second.job_ids is not None
    assert (second.job_ids[0], second.deduplicated_job_ids) == (first.job_id, [first.job_id])
    assert client.submit(url, CORPUS, force=True).job_id != first.job_id


def test_a_job_starts_when_those_before_it_are_done(stack: RunningStack, client: Client) -> None:
    first = client.submit(slow(stack), CORPUS).job_id
    second = client.submit(slow(stack, 0), CORPUS, depends_on=[first]).job_id
    assert client.get(second).status == "pending"
    before, after = client.wait([first, second], 40)
    assert (before.status, after.status) == ("done", "done")
    lost = client.submit(f"{stack.site}/lost.html", CORPUS).job_id
    behind = client.submit([slow(stack, 0)], CORPUS, depends_on=[first, lost]).job_id
    (job,) = client.wait([behind], 40)
    assert job.error is not None
    assert job.error.code == "dependency_failed"


def test_a_batch_is_counted(stack: RunningStack, client: Client, http: httpx.Client) -> None:
    urls = [stack.site + PAGE, f"{stack.site}/lost.html", f"{stack.site}/badge.png"]
    accepted = client.submit(urls, "counted")
    batch_id = accepted.batch_id or ""
    eventually(lambda: client.batch(batch_id).finished, "the end of the batch")
    found = client.batch(batch_id)
    assert (found.total, found.done, found.failed) == (3, 1, 2)
    assert found.failed_codes == {"http_404": 1, "unsupported_content_type": 1}
    assert len(client.list(batch_id=batch_id).jobs) == 3
    assert code(http.get(f"/orchestrator/batches/{uuid.uuid4()}")) == (404, "not_found")


@pytest.mark.parametrize(
    ("path", "body"),
    [("cancel", {"reason": "r"}), ("retry", None), ("replay", {})],
)
def test_another_callers_job_answers_like_an_unknown_one(
    stack: RunningStack, canceled: Job, path: str, body: object
) -> None:
    with stack.http(stack.other_api_key) as other:
        answer = other.post(f"/orchestrator/jobs/{canceled.job_id}/{path}", json=body)
    assert code(answer) == (404, "not_found")
    assert openapi.problems(f"/orchestrator/jobs/{{job_id}}/{path}", answer) == []


@pytest.mark.parametrize("body", [{}, {"reason": ""}, {"reason": " "}, {"reason": "r", "more": 1}])
def test_a_cancel_says_why(http: httpx.Client, canceled: Job, body: object) -> None:
    answer = http.post(f"/orchestrator/jobs/{canceled.job_id}/cancel", json=body)
    assert code(answer) == (422, "validation_error")


def test_the_commands_do_what_the_calls_do(stack: RunningStack, client: Client) -> None:
    def on(*arguments: str) -> tuple[int, str]:
        done = indexmill(*arguments, "--state", stack.state)
        return done.returncode, done.stdout + done.stderr

    # Long enough for the command to be started.
    job_id = client.submit(slow(stack, 6), CORPUS).job_id
    assert on("cancel", job_id, "--reason", "by hand") == (0, f"{job_id}  Job canceled\n")
    assert on("cancel", job_id) == (0, f"{job_id}  Job canceled\n")
    assert on("retry", job_id) == (0, f"{job_id}  retried\n")
    assert client.wait([job_id], 40)[0].status == "done"
    returncode, reported = on("replay", job_id, "--stored", "--json")
    assert (returncode, json.loads(reported)["same"]) == (0, True)
    assert "content  same" in on("replay", job_id, "--stored")[1]
    assert on("retry", "--code", "no_such_code", "--corpus", CORPUS, "--json") == (
        0,
        '{"retried": [], "skipped": [], "more": false}\n',
    )
    batch = client.submit([slow(stack), slow(stack)], CORPUS)
    given_up, kept = batch.job_ids or ()
    client.cancel(given_up, "a mistake")
    assert on("retry", "--code", "canceled", "--batch", batch.batch_id or "") == (0, f"{given_up}  retried\n")
    assert {job.status for job in client.wait([given_up, kept], 40)} == {"done"}
    assert on("retry")[0] == 2
