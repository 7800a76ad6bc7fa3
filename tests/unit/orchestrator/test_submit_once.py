"""Answers of a submit: duplicates, idempotency keys, and the stored request of each job."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import SubmitRequest
from indexmill.contracts.messages import ScrapeTask, read
from tests.support.orchestrator import OrchestratorHarness

A, B = "https://example.com/a", "https://example.com/b"


def test_a_duplicate_names_the_job_in_flight_and_is_not_sent_again(harness: OrchestratorHarness) -> None:
    first = harness.send(url=A)
    second = harness.send(url="HTTPS://Example.com:443/a#part")
    assert (first.deduplicated, second.deduplicated) == (False, True)
    assert (second.job_id, second.status, second.url_count) == (first.job_id, "pending", 1)
    assert second.deduplicated_job_ids is None
    assert second.expected_by == first.expected_by is not None
    assert len(harness.scrape.bodies) == 1
    assert harness.send(url=A, force=True).job_id != first.job_id


@pytest.mark.shows("B47")
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://\u0430pple.com/A", "https://xn--pple-43d.com/A"),
        ("https://B\u00fccher.example/\u00e4", "https://xn--bcher-kva.example/%C3%A4"),
        ("https://XN--BCHER-KVA.example/#a", "https://XN--BCHER-KVA.example/#a"),
        ("HTTPS://example.com/\u00e4", "HTTPS://example.com/\u00e4"),
    ],
)
def test_a_job_shows_an_international_name_in_a_labels(
    harness: OrchestratorHarness, url: str, shown: str
) -> None:
    assert harness.job(harness.send(url=url).job_id).url == shown


def test_a_batch_names_which_of_its_jobs_were_there_already(harness: OrchestratorHarness) -> None:
    known = harness.send(url=A).job_id
    batch = harness.send(urls=[B, A, B])
    assert batch.job_ids is not None
    assert (batch.url_count, batch.job_ids[1], batch.job_ids[2]) == (3, known, batch.job_ids[0])
    assert (batch.deduplicated, batch.deduplicated_job_ids) == (True, [known, batch.job_ids[0]])


def test_the_urls_of_a_batch_start_in_their_order(harness: OrchestratorHarness) -> None:
    urls = [f"https://example.com/{number}" for number in range(12)]
    batch = harness.send(urls=urls)
    started = [read(ScrapeTask, body) for body in harness.scrape.bodies]
    assert len(started) > 9
    assert [task.url for task in started] == urls[: len(started)]
    assert [task.job_id for task in started] == (batch.job_ids or [])[: len(started)]


def test_a_key_makes_two_submits_one(harness: OrchestratorHarness) -> None:
    first = harness.send("key", urls=[A, B])
    harness.cancel(first.job_id)
    assert harness.send("key", urls=[A, B]) == first
    assert len(harness.scrape.bodies) == 2


def test_a_key_for_another_request_is_a_conflict(harness: OrchestratorHarness) -> None:
    harness.send("key", url=A)
    with pytest.raises(CallerError) as refused:
        harness.send("key", url=A, priority=51)
    assert (refused.value.code, refused.value.http_status) == ("idempotency_conflict", 409)


@pytest.mark.parametrize("key", ["", " ", "a b", "é", "x" * 256, "tab\t", "line\n"])
def test_a_key_that_cannot_be_one_is_refused(harness: OrchestratorHarness, key: str) -> None:
    with pytest.raises(CallerError) as refused:
        harness.send(key, url=A)
    assert (refused.value.code, refused.value.http_status) == ("validation_error", 422)
    assert harness.scrape.bodies == []


def test_the_longest_key_is_taken(harness: OrchestratorHarness) -> None:
    assert harness.send("~" * 255, url=A).url_count == 1


def test_a_job_remembers_what_it_was_asked_for(harness: OrchestratorHarness) -> None:
    plain = harness.send(url=A, priority=9).job_id
    other = harness.send(url=A, priority=9, force=True, corpus_name="default").job_id
    third = harness.send(url=B, priority=9).job_id
    kept = [harness.original(job_id) for job_id in (plain, other, third)]
    digests = [original.payload_digest for original in kept]
    assert digests[0] == digests[1] != digests[2]
    assert (len(digests[0] or ""), harness.job(plain).priority) == (64, 9)


@pytest.mark.parametrize(
    "wrong",
    [
        {"priority": 101},
        {"priority": -1},
        {"priority": "50"},
        {"force": 1},
        {"job_type": "delete"},
        {"depends_on": ["x"] * 21},
        {"depends_on": "x"},
    ],
)
def test_a_request_with_a_wrong_option_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SubmitRequest.model_validate({"url": A, **wrong})


def test_a_job_that_waits_for_another_is_not_sent(harness: OrchestratorHarness) -> None:
    first = harness.send(url=A).job_id
    second = harness.send(urls=[B], depends_on=[first, first]).job_id
    assert [read(ScrapeTask, body).job_id for body in harness.scrape.bodies] == [first]
    harness.cancel(first)
    error = harness.job(second).error
    assert error is not None
    assert (error.code, harness.job(second).user_message) == (
        "dependency_failed",
        "A document that this one waits for could not be indexed.",
    )
