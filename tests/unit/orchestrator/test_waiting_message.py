"""Jobs whose tries fail or that something holds back: cause, next try, and by when it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.job import Job, JobStatus, LastError, Waiting
from indexmill.contracts.messages import Retrying, StageFailure, stage_result
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.texts import progress, waiting_message
from tests.support.jobs import CALLER, embedded, scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.jobs import InMemoryJobs

NOW = datetime(2026, 3, 14, 22, 30, tzinfo=UTC)


def job(code: str | None = None, reason: str | None = None, again_s: float = 120.0, **fields: Any) -> Job:
    """Return a job whose try failed by `code`, or that waits for a `reason`."""
    at = NOW + timedelta(seconds=again_s)
    status = JobStatus(fields.pop("status", "scraping"))
    waiting = Waiting.model_validate({"reason": reason, "next_eligible_at": at}) if reason else None
    error = LastError(code=code, message="for developers", at=NOW) if code else None
    known: dict[str, Any] = {"job_id": "j", "url": "u", "corpus_name": None, "attempt": 1, "user_message": ""}
    known |= {"created_at": NOW, "updated_at": NOW, "progress": progress(status, None)}
    return Job(**known, status=status, last_error=error, waiting=waiting, next_retry_at=at, **fields)


@pytest.mark.parametrize(
    ("status", "code", "cause"),
    [
        ("scraping", "dns_error", "The site's address could not be found"),
        ("scraping", "http_503", "The site answered with an error (503)"),
        ("scraping", "http_429", "The site gets too many requests at the moment"),
        ("scraping", "read_timeout", "The site took too long to answer"),
        ("scraping", "storage_unavailable", "Our storage did not answer"),
        ("embedding", "embedding_unavailable", "The embedding service did not answer"),
        ("embedding", "embedding_invalid", "Indexing failed"),
        ("chunking", "internal_error", "Something went wrong on our side"),
    ],
)
def test_a_failed_try_names_its_cause_and_the_next_try(status: str, code: str, cause: str) -> None:
    assert waiting_message(job(code, status=status), NOW) == f"{cause}; trying again at 22:32 UTC."


@pytest.mark.parametrize(
    ("again_s", "then"),
    [
        (-5, "now"),
        (0, "now"),
        (5, "in a few seconds"),
        (55, "within a minute"),
        (60, "at 22:31 UTC"),
        (5_400, "on March 15 at 00:00 UTC"),
    ],
)
def test_the_next_try_is_said_as_people_say_it(again_s: float, then: str) -> None:
    message = waiting_message(job("tls_error", again_s=again_s), NOW)
    assert message == f"The site's security certificate could not be verified; trying again {then}."


@pytest.mark.parametrize(
    ("reason", "code", "text"),
    [
        ("paused", None, "An operator has paused this step; it goes on by itself."),
        ("paused", "http_503", "An operator has paused this step; it goes on by itself."),
        ("breaker_open", None, "A service that this step needs does not answer; it goes on by itself."),
        (
            "breaker_open",
            "embedding_unavailable",
            "The embedding service did not answer; it goes on by itself.",
        ),
        (
            "domain_failing",
            "tls_error",
            "The site's security certificate could not be verified; trying again",
        ),
        ("domain_failing", None, "The site failed several times and is left alone for a while; trying again"),
        ("domain", None, "The site gets as many requests as it may; trying again"),
    ],
)
def test_what_holds_a_job_back_is_said(reason: str, code: str | None, text: str) -> None:
    status = "embedding" if reason == "breaker_open" else "scraping"
    message = waiting_message(job(code, reason, status=status), NOW)
    assert message is not None
    assert message.startswith(text)


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    assert waiting_message(job(), NOW) is None
    for reason in ("capacity", "quota_active", "dependency", "domain"):
        assert waiting_message(job(None, reason, status="pending"), NOW) is None
    for reason in ("domain_failing", "paused"):
        assert waiting_message(job(None, reason, status="pending"), NOW) is not None


def test_every_code_that_a_worker_tries_again_has_a_cause_of_one_sentence() -> None:
    for stage in STAGES:
        for code in ErrorCode:
            message = waiting_message(job(code, status=stage.name), NOW)
            assert message is not None
            assert message.count(".") == 1, message
            assert "try again" not in message.lower(), message


def failed_try(pipeline: OrchestratorHarness, job_id: str, wait_s: float, code: str = "dns_error") -> None:
    note = Retrying(
        tries=1,
        next_retry_at=pipeline.clock.now(),
        retry_in_s=wait_s,
        cause=code,
        failure=StageFailure(code=code, message="The name does not exist"),
    )
    message_id = f"{job_id}:{pipeline.clock.monotonic()}"
    report = {"message_id": message_id, "job_id": job_id, "stage": "scraping", "status": "retrying"}
    pipeline.deliver(stage_result(**report, retrying=note))


def read(pipeline: OrchestratorHarness, job_id: str) -> Job:
    """Return the job as `GET`, the list and the stream show it: all alike."""
    found = pipeline.read_jobs.get(CALLER, job_id)
    assert pipeline.read_jobs.events_after(CALLER, job_id, 0).job == found
    return found


def test_a_job_tells_its_last_error_and_when_it_is_tried_again() -> None:
    pipeline = OrchestratorHarness()
    job_id = pipeline.submit()
    before = read(pipeline, job_id)
    assert (before.last_error, before.user_message) == (None, "Fetching content…")
    failed_try(pipeline, job_id, 90.0)
    found = read(pipeline, job_id)
    assert found.last_error is not None
    assert (found.last_error.code, found.last_error.message) == ("dns_error", "The name does not exist")
    at = pipeline.clock.now()
    assert found.last_error.at == at
    assert (
        found.user_message
        == f"The site's address could not be found; trying again at {at + timedelta(seconds=90):%H:%M} UTC."
    )
    pipeline.clock.tick(91)
    assert read(pipeline, job_id).user_message == "The site's address could not be found; trying again now."
    pipeline.deliver(scraped(job_id))
    after = read(pipeline, job_id)
    assert (after.last_error, after.next_retry_at, after.user_message) == (None, None, "Indexing content…")


def test_the_expected_end_moves_with_the_next_try_and_goes_when_it_has_passed() -> None:
    pipeline = OrchestratorHarness()
    job_id = pipeline.submit()
    job = read(pipeline, job_id)
    promised = job.expected_by
    assert promised is not None
    failed_try(pipeline, job_id, 300.0)
    moved = read(pipeline, job_id).expected_by
    assert moved == pipeline.clock.now() + timedelta(seconds=300) + (promised - job.created_at)
    pipeline.clock.tick(1_000)
    assert read(pipeline, job_id).expected_by is None
    pipeline.deliver(scraped(job_id))
    pipeline.deliver(embedded(job_id))
    # An ended job keeps the promise, to be compared with.
    assert read(pipeline, job_id).expected_by == promised


def test_a_pause_takes_the_expected_end_away() -> None:
    pipeline = OrchestratorHarness()
    job_id = pipeline.submit()
    assert isinstance(pipeline.store, InMemoryJobs)
    pipeline.store.pauses["scraping"] = "a test"
    pipeline.clock.tick(6)
    job = read(pipeline, job_id)
    assert (job.waiting and job.waiting.reason, job.expected_by) == ("paused", None)


def test_a_failing_site_is_the_reason_until_it_is_asked_again() -> None:
    pipeline = OrchestratorHarness()
    job_id = pipeline.submit()
    note = Retrying(
        tries=0,
        next_retry_at=pipeline.clock.now(),
        retry_in_s=60.0,
        cause="domain_failing",
        failure=StageFailure(code="connection_refused", message="It is left alone"),
    )
    report = {"message_id": "wait", "job_id": job_id, "stage": "scraping", "status": "retrying"}
    pipeline.deliver(stage_result(**report, retrying=note))
    job = read(pipeline, job_id)
    assert job.waiting is not None
    assert (job.waiting.reason, job.waiting.next_eligible_at) == ("domain_failing", job.next_retry_at)
    assert job.user_message.startswith("The site did not answer; trying again at ")
    pipeline.clock.tick(61)
    assert read(pipeline, job_id).waiting is None


def test_a_submit_that_meets_a_late_job_promises_nothing_in_the_past() -> None:
    pipeline = OrchestratorHarness()
    first = pipeline.send(url="https://example.com/late", corpus_name="docs")
    assert first.expected_by is not None
    pipeline.clock.tick(10_000)
    again = pipeline.send(url="https://example.com/late", corpus_name="docs")
    assert (again.job_id, again.deduplicated, again.expected_by) == (first.job_id, True, None)
    assert JobFilter(CALLER.caller_id).limit == 50
