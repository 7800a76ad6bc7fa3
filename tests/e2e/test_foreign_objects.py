"""Another caller's object answers like an unknown one, on every endpoint that names one."""

from __future__ import annotations

import hashlib

import httpx
import pytest

from tests.support.foreign_objects import (
    OBJECTS,
    PLAIN,
    UNKNOWN,
    Row,
    comparable,
    rows,
    unclassified,
    unknown_cursor,
)
from tests.support.stack import RunningStack, index

pytestmark = pytest.mark.e2e


def test_every_place_of_the_contract_is_classified() -> None:
    assert unclassified() == [], "add the name to OBJECTS, or to PLAIN when it names no object of a caller"
    assert not OBJECTS.keys() & PLAIN
    assert len(rows()) >= 29


@pytest.fixture(scope="module")
def page(stack: RunningStack) -> str:
    return f"{stack.site}/handbook.html"


def objects_of(http: httpx.Client, page: str, corpus: str, key: str) -> dict[str, str]:
    """Make one object of each kind."""
    body = {"urls": [page, f"{page}?2"], "corpus_name": corpus}
    made = http.post("/orchestrator/jobs", json=body, headers={"Idempotency-Key": key})
    assert made.status_code == 202
    cursor = http.get("/orchestrator/jobs", params={"limit": 1}).json()["next_cursor"]
    asked = {"size": 5, "sha256": hashlib.sha256(b"words").hexdigest()}
    grant = http.post("/orchestrator/uploads", json=asked).json()
    httpx.put(grant["url"], content=b"words", headers=grant["headers"]).raise_for_status()
    return {
        "upload": grant["upload_id"],
        "job": made.json()["job_id"],
        "batch": made.json()["batch_id"],
        "corpus": corpus,
        "cursor": cursor,
        "key": key,
        "message": "a-message-of-another-caller",
        "document": "1" * 64,
    }


@pytest.fixture(scope="module")
def foreign(stack: RunningStack, http: httpx.Client, page: str) -> dict[str, str]:
    """Return objects of the first caller, among them a job that is done and a corpus with a document."""
    with stack.client() as client:
        done = index(client, page, "matrix-foreign")
        caller_id = client.get(done.job_id)
    assert caller_id.status == "done"
    found = objects_of(http, page, "matrix-foreign", "a-key-of-the-first-caller")
    objects_of(http, page, "matrix-written", "another-key-of-the-first-caller")
    made = {"job": done.job_id, "document": done.document_id or ""}
    return {**found, **made, "new corpus": "matrix-written", "caller": "f" * 16}


@pytest.fixture(scope="module")
def own(stack: RunningStack, page: str) -> dict[str, str]:
    """Return objects of the second caller, who asks."""
    with stack.http(stack.other_api_key) as other:
        return objects_of(other, page, "matrix-own", "a-key-of-the-second-caller")


@pytest.mark.shows("B64", "B72", "B74", "B90", "S1")
@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.method}-{row.path}-{row.keys[0]}")
def test_a_foreign_object_answers_like_an_unknown_one(
    stack: RunningStack, page: str, foreign: dict[str, str], own: dict[str, str], row: Row
) -> None:
    theirs = foreign[row.kind]
    nobodys = unknown_cursor(theirs) if row.kind == "cursor" else UNKNOWN[row.kind]
    answers = []
    with stack.http(stack.other_api_key) as other:
        for named in (theirs, nobodys):
            answer = other.request(**row.request(named, own, page))
            answers.append(comparable(answer.status_code, answer.headers, answer.content, named))
    assert answers[0] == answers[1]
    assert answers[0][0] in (200, 202, 403, 404, 422)


def test_the_comparison_sees_an_object_of_the_callers_own(
    stack: RunningStack, page: str, own: dict[str, str]
) -> None:
    """Otherwise the matrix would pass although nothing was asked."""
    seen = set()
    with stack.http(stack.other_api_key) as other:
        for row in rows():
            if row.kind not in ("job", "batch", "cursor") or row.place == "body":
                continue
            answer = other.request(**row.request(own[row.kind], own, page))
            if answer.status_code < 400:
                seen.add(row.path)
    assert {"/orchestrator/jobs", "/orchestrator/jobs/{job_id}", "/orchestrator/batches/{batch_id}"} <= seen
