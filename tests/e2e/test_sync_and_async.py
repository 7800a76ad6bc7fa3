"""Each service alone: synchronous, or queued; and which job gets the result."""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict
from typing import Any

import httpx
import pytest

from indexmill.client import Client
from indexmill.contracts.content import CHUNKER
from indexmill.contracts.job import Job
from local.faults.cloud import Cloud
from tests.support import openapi
from tests.support.stack import RunningStack, drained, eventually, index

pytestmark = pytest.mark.e2e

CORPUS = "alone"
URL = "https://example.com/page"
PAGE = "/visit/opening-hours.html"
OF_ONE_JOB = 3
"""Messages in the callback queue for one job: scraped, chunked, embedded."""


# Pages of these jobs are slow, so the test that counts results runs before them; each keeps a worker busy.
@pytest.fixture
def scraping(stack: RunningStack, client: Client) -> Job:
    """Return a job that stays in its first stage for some seconds; a worker has its page alone."""
    received = counted(stack, "ScrapeQueue", "messages")
    job_id = client.submit(f"{stack.site}/slow?seconds=8&id={uuid.uuid4()}", CORPUS).job_id
    eventually(lambda: counted(stack, "ScrapeQueue", "messages") > received, "a worker has the page")
    return client.get(job_id)


def counted(stack: RunningStack, queue: str, what: str) -> int:
    """Return a counter of a queue's event source: messages received, or deleted once they were handled."""
    return sum(source[what] for source in stack.status()["sources"].values() if source["queue"] == queue)


def reports(stack: RunningStack) -> int:
    """Return how many messages came out of the callback queue."""
    return counted(stack, "CallbacksQueue", "messages")


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.shows("R010", "R022")
def test_a_page_is_scraped_while_the_caller_waits(stack: RunningStack, http: httpx.Client) -> None:
    answer = http.post("/scraper/scrape", json={"url": stack.site + PAGE})
    assert (answer.status_code, openapi.problems("/scraper/scrape", answer)) == (200, [])
    page = answer.json()
    assert page["title"] == "Opening hours and how to find us"
    assert page["markdown"].startswith("# ")
    assert (page["language"], page["content_type"], page["job_id"]) == ("en", "text/html", None)
    assert page["size"] == len(httpx.get(stack.site + PAGE).content)


@pytest.mark.shows("R232")
def test_a_page_is_scraped_in_the_formats_that_are_asked_for(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    body = {"url": stack.site + PAGE, "formats": ["html"], "only_main_content": False}
    answer = http.post("/scraper/scrape", json=body)
    assert (answer.status_code, openapi.problems("/scraper/scrape", answer)) == (200, [])
    page = answer.json()
    assert (page["markdown"], page["html"].startswith("<body>")) == (None, True)
    assert page["metadata"]["title"] == "Opening hours and how to find us"
    part = client.scrape(stack.site + PAGE, formats=["markdown", "html"])
    assert part.markdown
    assert part.html
    assert len(part.html) < len(page["html"])
    refused = http.post("/scraper/scrape", json={**body, "formats": ["screenshot"]})
    assert (code(refused), refused.json()["error"]["field"]) == ((422, "validation_error"), "body.formats.0")


def test_a_page_that_cannot_be_scraped_says_why(stack: RunningStack, http: httpx.Client) -> None:
    codes = {}
    for path in ("/lost.html", "/private/ledger.html", "/empty.html", "/status/503"):
        answer = http.post("/scraper/scrape", json={"url": stack.site + path})
        assert openapi.problems("/scraper/scrape", answer) == []
        codes[path] = code(answer)
    assert codes == {
        "/lost.html": (422, "http_404"),
        "/private/ledger.html": (422, "robots_disallowed"),
        "/empty.html": (422, "empty_content"),
        "/status/503": (502, "http_503"),
    }


@pytest.mark.shows("R012")
def test_a_text_is_chunked_while_the_caller_waits(http: httpx.Client) -> None:
    text = "# One\n\n" + "All about the first. " * 60 + "\n\n# Two\n\n" + "All about the second. " * 60
    asked = {
        "text": text,
        "title": "T",
        "job_id": "my-job",
        "settings": {"max_tokens": 64, "overlap_tokens": 8},
    }
    answer = http.post("/chunking/chunk", json=asked)
    assert (answer.status_code, openapi.problems("/chunking/chunk", answer)) == (200, [])
    found = answer.json()
    assert (found["job_id"], found["settings"]) == ("my-job", asked["settings"])
    assert found["chunk_count"] == len(found["chunks"]) > 4
    assert [chunk["ordinal"] for chunk in found["chunks"]] == list(range(found["chunk_count"]))
    assert all(text[chunk["start"] : chunk["end"]] == chunk["text"] for chunk in found["chunks"])


@pytest.mark.shows("R014")
def test_texts_are_embedded_while_the_caller_waits(http: httpx.Client) -> None:
    answer = http.post("/embedding/embed", json={"texts": ["one", "two", "one"], "job_id": "my-job"})
    assert (answer.status_code, openapi.problems("/embedding/embed", answer)) == (200, [])
    found = answer.json()
    one, two, again = found["embeddings"]
    assert (len(one), one == again, one == two) == (found["dimension"], True, False)
    assert (found["job_id"], found["document_id"], found["published"]) == ("my-job", None, None)


@pytest.mark.shows("R016", "R019")
@pytest.mark.shows("S36")
def test_invisible_characters_are_flagged_in_texts_that_are_sent(http: httpx.Client) -> None:
    text, url = "Moor\u200bing \u202eseef\u202c", "https://hidden.example/"
    chunk = {"text": text, "context": "\ufeffFees"}
    for path, body, count in (
        ("/embedding/embed", {"texts": [text, "plain", text]}, 6),
        ("/embedding/enqueue", {"texts": [text], "url": url, "corpus_name": "hidden"}, 3),
        ("/embedding/enqueue", {"chunks": [chunk], "url": url, "corpus_name": "hidden"}, 4),
        ("/chunking/chunk", {"text": text}, 3),
        ("/chunking/enqueue", {"text": text}, 3),
        ("/chunking/chunk", {"text": "plain"}, 0),
    ):
        answer = http.post(path, json=body)
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert (answer.status_code // 100, answer.json()["hidden_characters"]) == (2, count), path


def test_embedding_with_a_url_publishes_that_document(stack: RunningStack, client: Client) -> None:
    url, corpus = f"{stack.site}/by-hand", "by-hand"
    first = client.embed(["otters swim in the harbour", "gulls steal bread"], url, corpus)
    assert (first.published, len(first.chunk_ids or ())) == (True, 2)
    found = client.search("otters", corpus).results
    assert [hit.chunk_id for hit in found][:1] == (first.chunk_ids or [])[:1]
    client.embed(["badgers dig behind the mill"], url, corpus)
    assert [hit.text for hit in client.search("otters", corpus).results] == ["badgers dig behind the mill"]


@pytest.mark.shows("R010", "R021")
def test_a_synchronous_request_sends_no_result(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    drained(stack)
    before = reports(stack)
    job_id = client.submit(f"{stack.site}/slow?seconds=1&sync", CORPUS).job_id
    requests: dict[str, dict[str, Any]] = {
        "/scraper/scrape": {"url": stack.site + PAGE},
        "/chunking/chunk": {"text": "Some words."},
        "/embedding/embed": {"texts": ["Some words."]},
    }
    for path, body in requests.items():
        answer = http.post(path, json={**body, "job_id": job_id})
        assert (answer.status_code, answer.json()["job_id"]) == (200, job_id)
    (job,) = client.wait([job_id], 30)
    assert (job.status, job.title) == ("done", "A slow page")
    assert reports(stack) - before == OF_ONE_JOB


@pytest.mark.shows("R011", "R020", "R022")
def test_queued_work_without_a_job_is_done_and_sends_no_result(
    stack: RunningStack, http: httpx.Client, client: Client
) -> None:
    page = f"{stack.site}/collections/sound-archive.html"
    drained(stack)
    before, done = reports(stack), counted(stack, "ScrapeQueue", "deleted")
    asked = stack_requests(stack, page)
    answer = http.post("/scraper/enqueue", json={"url": page})
    assert (answer.status_code, answer.json()) == (202, {"job_id": None, "status": "queued"})
    assert openapi.problems("/scraper/enqueue", answer) == []
    eventually(lambda: counted(stack, "ScrapeQueue", "deleted") > done, "the page's message is settled")
    assert stack_requests(stack, page) == asked + 1
    # What was reported, if anything, is in the queue before this job's own reports.
    assert index(client, stack.site + PAGE, CORPUS).status == "done"
    assert reports(stack) - before == OF_ONE_JOB


def stack_requests(stack: RunningStack, url: str) -> int:
    return int(stack.stand_in_state("site")["requests"].get(url.removeprefix(stack.site), 0))


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/scraper/enqueue", {"url": URL}),
        ("/chunking/enqueue", {"text": "words"}),
        ("/embedding/enqueue", {"url": URL, "texts": ["words"]}),
    ],
)
def test_a_job_may_not_be_named_from_outside(http: httpx.Client, path: str, body: dict[str, Any]) -> None:
    answer = http.post(path, json={**body, "job_id": str(uuid.uuid4())})
    assert (code(answer), answer.json()["error"]["field"]) == ((403, "forbidden"), "body.job_id")
    assert openapi.problems(path, answer) == []


@pytest.mark.shows("R013")
@pytest.mark.parametrize("size", [1, 5_000], ids=["small", "large"])
def test_a_queued_text_without_a_job_is_split_into_the_object_that_was_named(
    stack: RunningStack, http: httpx.Client, client: Client, size: int
) -> None:
    drained(stack)
    before = reports(stack)
    asked = {"text": "All about herons. " * size, "settings": {"max_tokens": 64, "overlap_tokens": 8}}
    answer = http.post("/chunking/enqueue", json=asked)
    assert (answer.status_code, openapi.problems("/chunking/enqueue", answer)) == (202, [])
    assert (answer.json()["status"], answer.json()["job_id"]) == ("queued", None)
    expected = http.post("/chunking/chunk", json=asked).json()
    made = eventually(lambda: stored(stack, answer.json()["result_key"]), "its chunks are stored")
    assert (made.pop("chunker"), len(made.pop("tokenizer"))) == (CHUNKER, 16)
    assert made == {"chunks": expected["chunks"], "chunk_count": expected["chunk_count"]}
    assert index(client, f"{stack.site}{PAGE}?after={size}", CORPUS).status == "done"
    assert reports(stack) - before == OF_ONE_JOB


def test_a_queued_text_that_cannot_be_split_has_an_error_in_its_object(
    stack: RunningStack, http: httpx.Client
) -> None:
    answer = http.post("/chunking/enqueue", json={"text": "  "})
    made = eventually(lambda: stored(stack, answer.json()["result_key"]), "its failure is stored")
    assert made["failure"]["code"] == "empty_content"


def stored(stack: RunningStack, key: str) -> Any:
    """Return a JSON object of the content bucket; None while there is none."""
    s3 = Cloud(asdict(stack)).s3
    try:
        answer = s3.get_object(Bucket=stack.resources["ContentBucket"], Key=key)
    except s3.exceptions.NoSuchKey:
        return None
    return json.loads(answer["Body"].read())


@pytest.mark.shows("R015", "R019")
def test_queued_chunks_without_a_job_become_searchable(stack: RunningStack, http: httpx.Client) -> None:
    corpus = f"queued-{uuid.uuid4().hex[:8]}"
    body = {
        "url": f"{stack.site}/queued",
        "title": "Queued",
        "texts": ["herons", "kingfishers"],
        "corpus_name": corpus,
    }
    answer = http.post("/embedding/enqueue", json=body)
    assert (answer.status_code, openapi.problems("/embedding/enqueue", answer)) == (202, [])
    assert (answer.json()["chunk_count"], answer.json()["job_id"]) == (2, None)

    def look() -> list[dict[str, Any]] | None:
        found = http.post("/embedding/search", json={"query": "herons", "corpus_name": corpus})
        return found.json()["results"] or None if found.status_code == 200 else None

    hits = eventually(look, "the texts can be found")
    assert (hits[0]["text"], hits[0]["title"], len(hits)) == ("herons", "Queued", 2)
    assert hits[0]["document_id"] == answer.json()["document_id"]


@pytest.mark.shows("R011", "R020")
def test_an_internal_caller_names_the_job_that_gets_the_result(
    stack: RunningStack, ops: httpx.Client, client: Client, scraping: Job
) -> None:
    answer = ops.post("/scraper/enqueue", json={"url": stack.site + PAGE, "job_id": scraping.job_id})
    assert (answer.status_code, answer.json()) == (202, {"job_id": scraping.job_id, "status": "queued"})
    (job,) = client.wait([scraping.job_id], 30)
    assert (job.status, job.title) == ("done", "Opening hours and how to find us")


def test_an_internal_callers_chunks_are_reported_to_the_job_it_names(
    ops: httpx.Client, client: Client, scraping: Job
) -> None:
    body = {"text": "Words by hand.", "job_id": scraping.job_id}
    answer = ops.post("/chunking/enqueue", json=body)
    assert (answer.status_code, answer.json()) == (
        202,
        {"job_id": scraping.job_id, "status": "queued", "hidden_characters": 0, "result_key": None},
    )
    (job,) = client.wait([scraping.job_id], 30)
    assert (job.status, job.chunk_count) == ("done", 1)


def test_internal_results_advance_the_job(ops: httpx.Client, client: Client, scraping: Job) -> None:
    path = f"/orchestrator/jobs/{scraping.job_id}/complete"
    embedded = {"stage": "embedding", "status": "success", "result": {"chunk_count": 1}}
    early = ops.post(path, json=embedded)
    assert code(early) == (409, "invalid_transition")
    scraped = {
        "stage": "scraping",
        "status": "success",
        "result": {"text": "# By hand\n\nWords.", "title": "By hand"},
    }
    first, copy = ops.post(path, json=scraped), ops.post(path, json=scraped)
    assert (first.status_code, first.json()) == (200, {"status": "chunking"})
    assert (copy.status_code, copy.json()) == (200, {"status": "already_advanced"})
    (job,) = client.wait([scraping.job_id], 30)
    assert (job.status, job.title, job.chunk_count) == ("done", "By hand", 1)
    late = ops.post(path, json=embedded)
    assert (late.status_code, late.json()) == (200, {"status": "already_advanced"})
    for answer in (early, first, copy, late):
        assert openapi.problems("/orchestrator/jobs/{job_id}/complete", answer) == []


def test_an_internal_result_with_a_failure_ends_the_job(
    ops: httpx.Client, client: Client, scraping: Job
) -> None:
    path = f"/orchestrator/jobs/{scraping.job_id}/complete"
    report = {"stage": "scraping", "status": "failed", "error_code": "http_403", "error_message": "Blocked"}
    assert ops.post(path, json=report).json() == {"status": "job_failed"}
    job = client.get(scraping.job_id)
    assert job.error is not None
    assert (job.status, job.failed_stage, job.error.code, job.error.message) == (
        *("failed", "scraping", "http_403", "Blocked"),
    )
    assert job.user_message == "The URL is blocked. Check that it is publicly accessible."
    assert ops.post(path, json={**report, "status": "success"}).status_code == 422
    assert ops.post(path, json=report).json() == {"status": "already_advanced"}
    unknown = ops.post(f"/orchestrator/jobs/{uuid.uuid4()}/complete", json=report)
    assert code(unknown) == (404, "not_found")


@pytest.mark.shows("R024", "R027")
def test_a_slow_page_is_refused_in_time_with_a_hint(rough_stack: RunningStack) -> None:
    with rough_stack.http() as caller:
        caller.post("/scraper/scrape", json={"url": rough_stack.site + PAGE})  # a cold start takes its time
        answer = caller.post("/scraper/scrape", json={"url": f"{rough_stack.site}/slow?seconds=9"})
    # In time: the gateway's own answer after IntegrationTimeoutSeconds has another message and no hint.
    assert (code(answer), answer.json()["error"]["message"]) == (
        (504, "deadline_exceeded"),
        "URL fetch too slow",
    )
    assert "POST /orchestrator/jobs" in answer.json()["error"]["hint"]
    assert openapi.problems("/scraper/scrape", answer) == []
