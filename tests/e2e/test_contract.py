"""The API that MLWorkbench was written against, field by field, and what was added to it since."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx
import pytest

from indexmill.client import Client
from indexmill.contracts.content import CHUNKER
from indexmill.embedding.analyzer import ANALYZER_VERSION
from indexmill.version import VERSION
from tests.support import openapi
from tests.support.stack import RunningStack, eventually, index

pytestmark = pytest.mark.e2e

Checks = dict[str, Callable[[Any], bool]]
CORPUS = "contract"
ISO_Z = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


def text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def null(value: Any) -> bool:
    return value is None


def an_id(value: Any) -> bool:
    return str(uuid.UUID(value)) == str(value)


def moment(value: Any) -> bool:
    return ISO_Z.fullmatch(value) is not None and datetime.fromisoformat(value).tzinfo is not None


def one_of(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values and type(value) in {type(each) for each in values}


def wrong(answer: Any, expected: Checks) -> list[str]:
    """Return the fields that are missing, too many, or not as expected."""
    assert isinstance(answer, dict)
    odd = sorted(answer.keys() ^ expected.keys())
    return odd + [
        f"{name}={answer[name]!r}" for name in expected if name in answer and not expected[name](answer[name])
    ]


SUBMITTED: Checks = {
    "job_id": an_id,
    "status": one_of("pending"),
    "url_count": one_of(1),
    # Beside the first version:
    "job_ids": null,
    "batch_id": null,
    "deduplicated": one_of(False),
    "deduplicated_job_ids": null,
    "expected_by": moment,
}
ALWAYS: Checks = {
    "job_id": an_id,
    "url": text,
    "corpus_name": one_of(CORPUS),
    "created_at": moment,
    "updated_at": moment,
    "attempt": one_of(1),
    "batch_id": null,
    "document_id": text,
    "attempts": null,
    "next_retry_at": null,
    "last_error": null,
    "priority": one_of(50),
    "job_type": one_of("index"),
    "replay_of": null,
    "retryable": one_of(False),
    "expected_by": lambda value: value is None or moment(value),
    "waiting": null,
    "request_id": text,
}
IN_PROGRESS: Checks = ALWAYS | {
    "status": one_of("scraping"),
    "failed_stage": null,
    "error": null,
    "user_message": one_of("Fetching content…"),
    "progress": one_of({"stage": 1, "of": 3}),
    "chunk_count": null,
    "title": null,
}
CHUNKS: Checks = {"total": whole, "reused": one_of(0), "embedded": whole, "removed": one_of(0)}
DONE: Checks = ALWAYS | {
    "status": one_of("done"),
    "failed_stage": null,
    "error": null,
    "user_message": one_of("Document indexed — ready to search"),
    "progress": one_of({"stage": 3, "of": 3}),
    "chunk_count": lambda value: whole(value) and value > 0,
    "title": text,
    "change": one_of("new"),
    "searchable_at": moment,
    "generation": lambda value: whole(value) and value > 0,
    "chunks": lambda value: wrong(value, CHUNKS) == [] and value["total"] == value["embedded"] > 0,
}
ERROR: Checks = {
    "stage": one_of("scraping"),
    "code": one_of("http_404"),
    "message": text,
    "at": moment,
    "cause": null,
    "attempts": one_of(1),
}
FAILED: Checks = ALWAYS | {
    "status": one_of("failed"),
    "attempts": one_of(1),
    "failed_stage": one_of("scraping"),
    "error": lambda value: wrong(value, ERROR) == [],
    "user_message": one_of("There is no page at this URL. Check the address."),
    "progress": one_of({"stage": 1, "of": 3}),
    "chunk_count": null,
    "title": null,
}
HIT: Checks = {
    "chunk_id": text,
    "corpus_name": one_of(CORPUS),
    "text": text,
    "score": lambda value: number(value) and 0 < value <= 1,
    "source_url": text,
    # Beside the first version:
    "title": text,
    "document_id": text,
    "ordinal": whole,
    "context": text,
    "start": whole,
    "end": whole,
    "hidden_characters": one_of(0),
    "stale": one_of(False),
    "indexed_at": moment,
    "fetched_at": moment,
    "published_at": null,
    "content_type": one_of("text/html"),
    "language": one_of("en"),
    "metadata": null,
    "page": null,
    "explain": null,
    "highlights": null,
    "preceding": null,
    "following": null,
}
FOUND: Checks = {
    "results": lambda value: len(value) == 2 and all(wrong(hit, HIT) == [] for hit in value),
    "query_ms": whole,
    "timings": lambda value: (
        wrong(value, {"embed_ms": whole, "search_ms": whole, "rerank_ms": one_of(0)}) == []
    ),
    "degraded": lambda value: value is None,
    "reranked": one_of(None),
    "other_model": lambda value: value is False,
}


@pytest.fixture(scope="module")
def done_url(stack: RunningStack, client: Client) -> str:
    """Return the URL of an indexed page of the corpus."""
    url = f"{stack.site}/handbook.html"
    assert index(client, url, CORPUS).status == "done"
    return url


def get(http: httpx.Client, job_id: str) -> httpx.Response:
    answer = http.get(f"/orchestrator/jobs/{job_id}")
    assert (answer.status_code, openapi.problems("/orchestrator/jobs/{job_id}", answer)) == (200, [])
    return answer


def ended(http: httpx.Client, job_id: str) -> Any:
    def look() -> Any:
        job = get(http, job_id).json()
        return job if job["status"] in ("done", "failed") else None

    return eventually(look, f"the end of {job_id}")


def test_a_submitted_page_goes_from_pending_to_done(stack: RunningStack, http: httpx.Client) -> None:
    url = f"{stack.site}/slow?seconds=2"
    answer = http.post("/orchestrator/jobs", json={"url": url, "corpus_name": CORPUS})
    assert (answer.status_code, wrong(answer.json(), SUBMITTED)) == (202, [])
    assert openapi.problems("/orchestrator/jobs", answer) == []
    job = get(http, answer.json()["job_id"]).json()
    assert wrong(job, IN_PROGRESS) == []
    last = ended(http, job["job_id"])
    assert wrong(last, DONE) == []
    assert (last["url"], last["title"], last["created_at"]) == (url, "A slow page", job["created_at"])
    assert datetime.fromisoformat(last["updated_at"]) > datetime.fromisoformat(last["created_at"])


def test_a_page_that_is_not_there_fails_with_its_reason(stack: RunningStack, http: httpx.Client) -> None:
    answer = http.post("/orchestrator/jobs", json={"url": f"{stack.site}/lost.html", "corpus_name": CORPUS})
    assert wrong(ended(http, answer.json()["job_id"]), FAILED) == []


@pytest.mark.parametrize("path", ["/orchestrator/jobs", "/orchestrator/jobs/"])
def test_the_list_is_the_same_under_both_spellings(http: httpx.Client, done_url: str, path: str) -> None:
    answer = http.get(path, params={"corpus_name": CORPUS, "status": "done", "limit": 1, "url": done_url})
    assert answer.status_code == 200
    assert openapi.problems("/orchestrator/jobs", answer) == []
    listed = answer.json()
    assert (listed.keys(), listed["count"]) == ({"jobs", "count", "next_cursor"}, 1)
    assert wrong(listed["jobs"][0], DONE) == []
    assert listed["jobs"][0] == get(http, listed["jobs"][0]["job_id"]).json()


@pytest.mark.shows("P063", "P065", "P069")
def test_a_search_finds_documents_by_what_was_said_of_them(http: httpx.Client, client: Client) -> None:
    for name, team in (("boat.md", "yard"), ("pier.md", "quay")):
        text = f"# Mooring\n\nA berth at the {name} is moored daily."
        accepted = client.submit_text(name, text, "said", metadata={"team": team, "due": "2026-03-14"})
        [job] = client.wait([accepted.job_id], timeout_s=60)
        assert (job.status, job.metadata) == ("done", {"team": team, "due": "2026-03-14"})
    due = {"metadata": {"team": "quay"}, "metadata_dates": {"due": {"since": "2026-03-14"}}}
    found = client.search("mooring fees", "said", filter=due, highlights=True, neighbours=1)
    [hit] = found.results
    assert (hit.source_url, hit.metadata) == ("upload:pier.md", {"team": "quay", "due": "2026-03-14"})
    assert hit.indexed_at == job.searchable_at
    assert [hit.text[each.start : each.end] for each in hit.highlights or ()] == ["Mooring", "moored"]
    assert (hit.preceding, hit.following) == ([], [])
    asked = {"corpus_name": "said", "query": "mooring", "filter": {"colour": "red"}}
    refused = http.post("/embedding/search", json=asked)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["field"]) == (
        422,
        "validation_error",
        "body.filter.colour",
    )


def test_a_search_answers_with_chunks_and_their_sources(http: httpx.Client, done_url: str) -> None:
    asked = {"corpus_name": CORPUS, "query": "what may a keeper do", "top_k": 2}
    answer = http.post("/embedding/search", json=asked)
    assert (answer.status_code, wrong(answer.json(), FOUND)) == (200, [])
    assert openapi.problems("/embedding/search", answer) == []
    hits = answer.json()["results"]
    assert {hit["source_url"] for hit in hits} == {done_url}
    assert hits[0]["score"] >= hits[1]["score"]


@pytest.mark.shows("X17", "P070", "R169")
def test_a_search_explains_its_scores_and_what_made_them(
    stack: RunningStack, http: httpx.Client, done_url: str
) -> None:
    asked = {"corpora": [CORPUS], "query": "what may a keeper do", "top_k": 1, "explain": True}
    answer = http.post("/embedding/search", json=asked)
    assert openapi.problems("/embedding/search", answer) == []
    (hit,) = answer.json()["results"]
    explain = hit["explain"]
    parts = [explain[name] for name in ("keyword", "vector") if explain[name] is not None]
    assert hit["score"] == pytest.approx(sum(part["weight"] * part["normalized"] for part in parts))
    assert {part["weight"] for part in parts} <= {0.7, 0.3}
    assert hit["source_url"] == done_url
    assert explain["generation"] > 0
    assert 0 <= explain["age_s"] < 600
    assert explain["embedding_version"] == {
        "model": stack.parameters["EmbeddingModel"],
        "dimension": int(stack.parameters["EmbeddingDimension"]),
        "analyzer": ANALYZER_VERSION,
        "chunker": CHUNKER,
    }


def test_every_answer_names_its_request(http: httpx.Client) -> None:
    good = http.get("/orchestrator/jobs", params={"limit": 1})
    an_id(good.headers["X-Request-Id"])
    bad = http.get("/orchestrator/jobs/unknown", headers={"X-Request-Id": "my-own-7"})
    assert bad.json()["error"]["request_id"] == "my-own-7"


def refusal(answer: httpx.Response) -> tuple[int, str]:
    error = answer.json()["error"]
    assert {"code", "message", "request_id"} <= error.keys()
    return answer.status_code, error["code"]


@pytest.mark.shows("B75")
def test_statuses_of_refusals(stack: RunningStack, http: httpx.Client) -> None:
    unknown = str(uuid.uuid4())
    report = {"stage": "scraping", "status": "failed", "error_code": "http_404", "error_message": "gone"}
    with stack.http("") as anonymous, stack.http("dev-no-such-key") as stranger:
        missing = anonymous.get("/orchestrator/jobs")
        invalid = stranger.get("/orchestrator/jobs")
    assert refusal(missing) == refusal(invalid) == (401, "invalid_api_key")
    reported = http.post(f"/orchestrator/jobs/{unknown}/complete", json=report)
    assert refusal(reported) == (403, "forbidden")
    assert reported.json()["error"]["message"] == "Internal service key required"
    absent = http.get(f"/orchestrator/jobs/{unknown}")
    assert refusal(absent) == (404, "not_found")
    for path, answer in {
        "/orchestrator/jobs": missing,
        "/orchestrator/jobs/{job_id}/complete": reported,
        "/orchestrator/jobs/{job_id}": absent,
    }.items():
        assert openapi.problems(path, answer) == []


def test_the_document_lists_the_codes_of_the_error_table() -> None:
    assert {
        "invalid_api_key",
        "not_found",
        "deadline_exceeded",
        "max_retries_exceeded",
    } <= openapi.error_codes()
    assert openapi.broken({"$ref": "#/components/schemas/JobStatus"}, "lost") != []


def test_health_needs_no_key(stack: RunningStack) -> None:
    answer = httpx.get(f"{stack.gateway}/orchestrator/health")
    health = answer.json()
    assert (answer.status_code, health["version"], health["stages"]["scraping"]) == (200, VERSION, "up")
    assert answer.headers["cache-control"] == "public, max-age=10"
