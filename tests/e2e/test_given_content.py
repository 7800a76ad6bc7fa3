"""Documents without a URL, on a running stack: from what a caller sends to what a search finds."""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from indexmill.client import ApiError, Client
from indexmill.contracts.content import MAX_INLINE_BYTES, MAX_UPLOAD_BYTES
from indexmill.contracts.job import Job
from tests.support import openapi
from tests.support.refusals import refused
from tests.support.stack import RunningStack
from tests.unit.scraper.pdf_file import pdf

pytestmark = pytest.mark.e2e

CORPUS = "given"
HTML = "<!doctype html><title>Tide table</title><main><h1>Tides</h1><p>The harbour floods at noon.</p></main>"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def submit(http: httpx.Client, content: dict[str, Any], **more: Any) -> httpx.Response:
    return http.post("/orchestrator/jobs", json={"content": content, "corpus_name": CORPUS, **more})


def ended(client: Client, answer: httpx.Response) -> Job:
    assert answer.status_code == 202, answer.text
    (job,) = client.wait([answer.json()["job_id"]], 40)
    return job


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ({"name": "herons.md", "text": "# Herons\n\nGrey herons stand in the reeds."}, "text"),
        ({"name": "tides", "text": HTML, "content_type": "text/html"}, "text"),
        ({"name": "ferries.pdf", "base64": encoded(pdf("The ferry leaves the pier at dawn."))}, "base64"),
    ],
    ids=["markdown", "html", "pdf"],
)
def test_given_content_is_found(
    client: Client, http: httpx.Client, content: dict[str, Any], kind: str
) -> None:
    job = ended(client, submit(http, content))
    assert (job.status, job.url, job.error) == ("done", f"upload:{content['name']}", None)
    question = {"herons.md": "herons reeds", "tides": "harbour floods", "ferries.pdf": "ferry pier"}
    best = client.search(question[content["name"]], CORPUS, 1).results[0]
    assert (best.source_url, best.document_id) == (job.url, job.document_id)
    assert [each.job_id for each in client.list(url=job.url, corpus_name=CORPUS).jobs] == [job.job_id]
    receipt = client.get(job.job_id, receipt=True).receipt
    assert receipt is not None
    assert (receipt.bytes_fetched, receipt.s3_writes) == (0, pytest.approx(1, abs=0.01)), kind


def test_newer_content_of_a_name_replaces_the_older(client: Client) -> None:
    corpus = f"given-{uuid.uuid4().hex[:8]}"
    for text in ("Apples ripen late.", "Plums ripen early."):
        accepted = client.submit_text("orchard/fruit.txt", text, corpus)
        (job,) = client.wait([accepted.job_id], 40)
        assert job.status == "done"
    found = client.search("ripen", corpus, 10).results
    assert [(hit.source_url, hit.text) for hit in found] == [
        ("upload:orchard/fruit.txt", "Plums ripen early.")
    ]


def test_content_is_replayed_and_retried_without_a_site(
    stack: RunningStack, client: Client, http: httpx.Client
) -> None:
    first = ended(client, submit(http, {"name": "replayed.md", "text": "# Owls\n\nOwls hunt at night."}))
    again = client.wait(
        [http.post(f"/orchestrator/jobs/{first.job_id}/replay", json={}).json()["job_id"]], 40
    )
    assert [job.status for job in again] == ["done"]
    assert client.diff(again[0].job_id).same is True
    answer = http.post(f"/orchestrator/jobs/{first.job_id}/replay", json={"source": "fetch"})
    refused(answer, 409, "invalid_transition")
    slow = client.submit(f"{stack.site}/slow?seconds=3&id={uuid.uuid4()}", CORPUS).job_id
    content = {"name": "late.md", "text": "# Bats\n\nBats sleep by day."}
    waiting = submit(http, content, depends_on=[slow]).json()["job_id"]
    client.cancel(waiting, "too early")
    client.retry(waiting)
    (job,) = client.wait([waiting], 40)
    assert (job.status, job.attempt) == ("done", 2)


def test_content_that_cannot_be_read_fails_its_job_with_the_code_of_a_page(
    client: Client, http: httpx.Client
) -> None:
    job = ended(client, submit(http, {"name": "badge.png", "base64": encoded(b"\x89PNG\r\n\x1a\n0000")}))
    assert job.error is not None
    assert (job.error.code, job.failed_stage) == ("unsupported_content_type", "scraping")
    assert client.retry(job.job_id).attempt == 2
    (job,) = client.wait([job.job_id], 40)
    assert job.error is not None
    assert job.error.code == "unsupported_content_type"
    small = ended(client, submit(http, {"name": "n.txt", "text": "some words"}, budget={"max_bytes": 5}))
    assert small.error is not None
    assert small.error.code == "budget_exceeded"


@pytest.mark.parametrize(
    ("content", "code", "field"),
    [
        ({"name": "a", "text": "x" * (MAX_INLINE_BYTES + 1)}, "content_too_large", "body.content.text"),
        ({"name": "a", "text": "ä" * (MAX_INLINE_BYTES // 2 + 1)}, "content_too_large", "body.content.text"),
        (
            {"name": "a", "base64": encoded(bytes(MAX_INLINE_BYTES + 1))},
            "content_too_large",
            "body.content.base64",
        ),
        ({"name": "a", "base64": "no base64!"}, "validation_error", "body.content.base64"),
        ({"name": "a", "base64": "YWJj\n"}, "validation_error", "body.content.base64"),
        ({"name": "a"}, "validation_error", "body.content"),
        ({"name": "a", "text": "x", "base64": "eA=="}, "validation_error", "body.content"),
        ({"name": "", "text": "x"}, "validation_error", "body.content.name"),
        ({"name": " ", "text": "x"}, "validation_error", "body.content.name"),
        ({"name": "a\nb", "text": "x"}, "validation_error", "body.content.name"),
        ({"name": "x" * 256, "text": "x"}, "validation_error", "body.content.name"),
        ({"name": "\U0001f989" * 255, "text": "x"}, "validation_error", "body.content.name"),
        ({"name": "a", "text": ""}, "validation_error", "body.content.text"),
        ({"name": "a", "text": "x", "content_type": "html"}, "validation_error", "body.content.content_type"),
        ({"name": "a", "text": "x", "url": "https://example.com"}, "validation_error", "body.content.url"),
    ],
)
def test_bad_content_is_a_coded_refusal(
    http: httpx.Client, content: dict[str, Any], code: str, field: str
) -> None:
    answer = submit(http, content)
    refused(answer, 422, code, "/orchestrator/jobs")
    assert answer.json()["error"]["field"] == field


def test_a_request_has_urls_or_content(http: httpx.Client, client: Client) -> None:
    content = {"name": "a", "text": "x"}
    for more in ({"url": "https://example.com/"}, {"urls": ["https://example.com/"]}):
        refused(submit(http, content, **more), 422, "validation_error", "/orchestrator/jobs")
    most = ended(client, submit(http, {"name": "most.txt", "text": "word " * (MAX_INLINE_BYTES // 5)}))
    assert most.status == "done"
    with pytest.raises(ApiError, match="184320 bytes"):
        client.submit_text("a", "x" * 200_000)


def granted(http: httpx.Client, data: bytes, **more: Any) -> dict[str, Any]:
    """Ask for the upload of `data`; return the answer."""
    asked = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}
    answer = http.post("/orchestrator/uploads", json=asked)
    assert answer.status_code == 200, answer.text
    assert openapi.problems("/orchestrator/uploads", answer) == []
    found: dict[str, Any] = answer.json()
    return found


def test_an_upload_is_found_after_its_submit_and_replayed(client: Client, http: httpx.Client) -> None:
    data = pdf("The lighthouse keeper counts ships.", beside=bytes(3_000_000))
    grant = granted(http, data, content_type="application/pdf")
    assert httpx.put(grant["url"], content=data, headers=grant["headers"]).status_code == 200
    job = ended(client, submit(http, {"name": "lighthouse.pdf", "upload_id": grant["upload_id"]}))
    assert (job.status, job.url, job.error) == ("done", "upload:lighthouse.pdf", None)
    assert client.search("lighthouse keeper", CORPUS, 1).results[0].source_url == job.url
    (again,) = client.wait([client.replay(job.job_id).job_id], 40)
    assert (again.status, client.diff(again.job_id).same) == ("done", True)


def test_the_store_refuses_other_content_than_was_announced(http: httpx.Client) -> None:
    grant = granted(http, b"words")
    assert httpx.put(grant["url"], content=b"other", headers=grant["headers"]).status_code == 400
    refused(
        submit(http, {"name": "n", "upload_id": grant["upload_id"]}), 404, "not_found", "/orchestrator/jobs"
    )
    signed = parse_qs(urlsplit(grant["url"]).query)
    assert signed["X-Amz-Algorithm"] == ["AWS4-HMAC-SHA256"]
    assert signed["X-Amz-Expires"] == ["900"]
    assert signed["X-Amz-SignedHeaders"] == ["content-length;content-type;host;x-amz-checksum-sha256"]


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ({"size": MAX_UPLOAD_BYTES + 1}, "content_too_large", "body.size"),
        ({"size": 0}, "validation_error", "body.size"),
        ({"sha256": "0" * 63}, "validation_error", "body.sha256"),
        ({"sha256": "G" * 64}, "validation_error", "body.sha256"),
        ({"content_type": "pdf"}, "validation_error", "body.content_type"),
        ({"name": "n"}, "validation_error", "body.name"),
    ],
)
def test_a_bad_upload_is_a_coded_refusal(
    http: httpx.Client, body: dict[str, Any], code: str, field: str
) -> None:
    answer = http.post("/orchestrator/uploads", json={"size": 1, "sha256": "0" * 64, **body})
    refused(answer, 422, code, "/orchestrator/uploads")
    assert answer.json()["error"]["field"] == field


@pytest.mark.parametrize(
    "url", ["upload:herons.md", "UPLOAD:herons.md", "upload://127.0.0.1/", "upload:http://127.0.0.1/"]
)
def test_a_name_is_no_url_to_fetch(http: httpx.Client, url: str) -> None:
    for path in ("/orchestrator/jobs", "/scraper/scrape", "/scraper/enqueue"):
        refused(http.post(path, json={"url": url}), 422, "url_scheme_not_allowed", path)
