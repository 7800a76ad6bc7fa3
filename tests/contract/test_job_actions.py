"""One suite for cancel and retry over every store, with what they do to publishing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.http_actions import ReplayRequest, RetryRequest
from indexmill.contracts.identity import CallerContext, MissingScope
from indexmill.contracts.job import Job, SubmitRequest
from indexmill.contracts.messages import ChunkTask, ScrapeTask, read
from indexmill.orchestrator.actions.replay import ReplayJobs
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.store.results import Verdict
from indexmill.orchestrator.submission.submit import owner_of
from tests.support.job_stores import Jobs, Sent, embed_task, postgres_jobs, twin_jobs
from tests.support.jobs import CALLER, chunked, embedded, failed, new_job, scraped
from tests.twins.clock import FrozenClock

AT = FrozenClock().now()


@pytest.fixture(params=["twin", "postgres"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    if request.param == "twin":
        yield twin_jobs()
        return
    with postgres_jobs(request.getfixturevalue("database_url")) as found:
        yield found


def cancel(jobs: Jobs, job_id: str, caller_id: str = CALLER.caller_id) -> Job:
    return jobs.cancel(job_id, "no longer wanted", CallerContext(caller_id=caller_id))


def refusal(call: object, *arguments: object) -> str:
    with pytest.raises(CallerError) as refused:
        call(*arguments)  # type: ignore[operator]
    return refused.value.code


def code_of(job: Job) -> str | None:
    return job.error.code if job.error else None


def retry(jobs: Jobs, job_id: str) -> Job:
    return jobs.retry(job_id).job


def test_a_canceled_job_is_failed_and_says_why(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    job = cancel(jobs, job_id)
    assert job == jobs.job(job_id)
    assert (job.status, job.failed_stage, job.user_message) == ("failed", "scraping", "Job canceled")
    assert job.error is not None
    assert (job.error.code, job.error.message, job.error.at) == ("canceled", "no longer wanted", AT)
    assert job.retryable
    assert jobs.history(job_id)[-1] == (1, "scraping", "failed")


@pytest.mark.fault("F15")
def test_what_is_still_reported_of_a_canceled_job_changes_nothing(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    cancel(jobs, job_id)
    assert jobs.apply(scraped(job_id), failed(job_id)) == [Verdict.LATE, Verdict.LATE]
    assert code_of(jobs.job(job_id)) == "canceled"


@pytest.mark.shows("S1")
def test_only_the_owner_cancels_and_only_what_has_not_ended(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    assert refusal(cancel, jobs, job_id, "somebody-else") == "not_found"
    assert refusal(cancel, jobs, str(uuid.uuid4())) == "not_found"
    done, _ = jobs.up_to_embedding(new_job("https://example.com/done"))
    jobs.apply(embedded(done))
    assert refusal(cancel, jobs, done) == "invalid_transition"


@pytest.mark.shows("B73")
def test_a_second_cancel_changes_nothing(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    cancel(jobs, job_id)
    first = jobs.job(job_id)
    jobs.cancel(job_id, "again")
    assert jobs.job(job_id) == first
    assert jobs.history(job_id)[-1] == (1, "scraping", "failed")
    failed_job = jobs.submit(new_job("https://example.com/failed"))
    jobs.apply(failed(failed_job))
    assert refusal(cancel, jobs, failed_job) == "invalid_transition"


def test_the_same_cancel_whose_answer_was_lost_is_the_same_cancel(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    assert cancel(jobs, job_id) == cancel(jobs, job_id)
    assert len(jobs.history(job_id)) == 3


@pytest.mark.fault("F15")
def test_nothing_of_a_canceled_job_is_published(jobs: Jobs) -> None:
    job_id, task = jobs.up_to_embedding(new_job())
    cancel(jobs, job_id)
    assert not jobs.publish(task.target.document_id, task.generation)


def test_a_job_that_is_published_already_cannot_be_canceled_and_is_done_soon(jobs: Jobs) -> None:
    job_id, task = jobs.up_to_embedding(new_job())
    assert jobs.publish(task.target.document_id, task.generation)
    assert refusal(cancel, jobs, job_id) == "invalid_transition"
    assert jobs.apply(embedded(job_id)) == [Verdict.ADVANCE]
    assert jobs.job(job_id).status == "done"


@pytest.mark.fault("F14")
def test_nothing_of_a_failed_job_is_published(jobs: Jobs) -> None:
    job_id, task = jobs.up_to_embedding(new_job())
    jobs.apply(failed(job_id, "embedding", "poison_message"))
    assert jobs.job(job_id).status == "failed"
    assert not jobs.publish(task.target.document_id, task.generation)


@pytest.mark.parametrize("newer", [0, 5])
def test_a_failure_after_the_publish_is_a_success(jobs: Jobs, newer: int) -> None:
    job_id, task = jobs.up_to_embedding(new_job())
    assert jobs.publish(task.target.document_id, task.generation + newer)
    assert jobs.apply(failed(job_id, "embedding", "poison_message")) == [Verdict.ADVANCE]
    assert (jobs.job(job_id).status, jobs.job(job_id).error) == ("done", None)


def test_a_job_that_another_ones_end_fenced_out_publishes_again(jobs: Jobs) -> None:
    mine, first = jobs.up_to_embedding(new_job())
    other, _ = jobs.up_to_embedding(new_job(forced=True))
    cancel(jobs, other)
    document = first.target.document_id
    assert not jobs.publish(document, first.generation)
    (change,) = jobs.changes(embedded(mine, published=False))
    assert (change.verdict, jobs.job(mine).status) == (Verdict.REDISPATCH, "embedding")
    again = embed_task(change.outbox)
    assert (again.job_id, again.attempt, again.chunks) == (mine, 1, first.chunks)
    assert again.message_id != first.message_id
    assert jobs.publish(document, again.generation)
    assert jobs.apply(embedded(mine)) == [Verdict.ADVANCE]
    assert jobs.job(mine).status == "done"


def test_a_job_that_a_newer_version_superseded_is_done(jobs: Jobs) -> None:
    job_id, _ = jobs.up_to_embedding(new_job())
    assert jobs.apply(embedded(job_id, published=False, superseded=True)) == [Verdict.ADVANCE]
    assert jobs.job(job_id).status == "done"


def test_a_retry_resumes_at_the_stage_that_failed(jobs: Jobs) -> None:
    job_id, first = jobs.up_to_embedding(new_job())
    jobs.apply(failed(job_id, "embedding", "max_retries_exceeded"))
    message_id = str(uuid.uuid4())
    outcome = jobs.retry(job_id, message_id)
    again = embed_task(outcome.outbox)
    assert (again.message_id, again.attempt, again.chunks) == (message_id, 2, first.chunks)
    job = jobs.job(job_id)
    assert (job.status, job.attempt, job.error, job.failed_stage) == ("embedding", 2, None, None)
    assert jobs.history(job_id)[-2:] == [(2, "failed", "pending"), (2, "pending", "embedding")]
    assert not jobs.publish(first.target.document_id, first.generation)
    assert jobs.publish(first.target.document_id, again.generation)
    assert jobs.apply(embedded(job_id, attempt=1)) == [Verdict.LATE]
    assert jobs.apply(embedded(job_id, attempt=2)) == [Verdict.ADVANCE]


def test_a_retry_of_chunking_and_of_the_first_stage(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.apply(scraped(job_id), failed(job_id, "chunking", "max_retries_exceeded"))
    outcome = jobs.retry(job_id)
    (row,) = outcome.outbox
    chunk_task = read(ChunkTask, row.payload)
    assert (row.stage, chunk_task.message_id, chunk_task.attempt, chunk_task.text) == (
        *("chunking", row.id, 2),
        "# Title\n\nSome words.",
    )
    cancel(jobs, job_id)
    assert jobs.job(job_id).failed_stage == "chunking"
    other = jobs.submit(new_job("https://example.com/b"))
    jobs.apply(failed(other, code="http_404"))
    assert not jobs.job(other).retryable
    (row,) = jobs.retry(other, "m-2").outbox
    task = read(ScrapeTask, row.payload)
    assert (task.message_id, task.attempt, task.url) == ("m-2", 2, "https://example.com/b")


def test_a_retry_without_the_kept_payload_goes_back_to_what_there_is(jobs: Jobs) -> None:
    job_id, _ = jobs.up_to_embedding(new_job())
    jobs.apply(failed(job_id, "embedding", "poison_message"))
    jobs.forget_payloads(job_id, "embedding")
    assert retry(jobs, job_id).status == "chunking"
    jobs.apply(chunked(job_id, 2), failed(job_id, "embedding", "poison_message", 2))
    for stage in ("scraping", "chunking", "embedding"):
        jobs.forget_payloads(job_id, stage)
    assert retry(jobs, job_id).status == "scraping"


def test_a_retry_fetches_again_when_a_newer_job_published_the_document(jobs: Jobs) -> None:
    job_id, task = jobs.up_to_embedding(new_job())
    jobs.apply(failed(job_id, "embedding", "poison_message"))
    newer, newest = jobs.up_to_embedding(new_job())
    assert jobs.publish(task.target.document_id, newest.generation)
    jobs.apply(embedded(newer))
    assert retry(jobs, job_id).status == "scraping"


@pytest.mark.parametrize("code", ["content_missing", "content_corrupt"])
def test_a_retry_fetches_again_what_the_store_has_lost(jobs: Jobs, code: str) -> None:
    job_id = jobs.submit(new_job())
    for attempt in (1, 2):
        jobs.apply(scraped(job_id, attempt), failed(job_id, "chunking", code, attempt))
    job = jobs.job(job_id)
    assert (job.status, job.attempt, job.retryable) == ("failed", 2, True)
    assert retry(jobs, job_id).status == "scraping"


def test_only_a_failed_job_is_retried_and_only_when_it_is_alone(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    assert refusal(retry, jobs, job_id) == "invalid_transition"
    assert refusal(retry, jobs, str(uuid.uuid4())) == "not_found"
    jobs.apply(failed(job_id))
    other = jobs.submit(new_job())
    with pytest.raises(CallerError, match=other) as refused:
        retry(jobs, job_id)
    assert refused.value.code == "invalid_transition"
    cancel(jobs, other)
    assert retry(jobs, job_id).status == "scraping"


def test_the_same_retry_whose_answer_was_lost_is_the_same_retry(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job())
    jobs.apply(failed(job_id))
    first = jobs.retry(job_id, "m-2")
    second = jobs.retry(job_id, "m-2")
    assert (len(first.outbox), len(second.outbox)) == (1, 0)
    assert second.job.attempt == 2


@pytest.mark.shows("P080")
def test_a_job_that_deletes_is_retried_and_replayed_by_a_key_that_may_delete(database_url: str) -> None:
    with postgres_jobs(database_url) as jobs:
        job_id = jobs.submit(new_job(job_type="delete"))
        jobs.apply(failed(job_id))
        may_not = replace(CALLER, scopes=("orchestrator:write", "embedding:write"))
        retries, replays = RetryJobs(jobs.store, Sent()), ReplayJobs(jobs.store, Sent())
        assert refusal(retries.one, may_not, job_id) == "insufficient_scope"
        assert refusal(replays.replay, may_not, job_id, ReplayRequest(), "") == "insufficient_scope"
        (skipped,) = retries.every(may_not, RetryRequest(include_permanent=True)).skipped
        assert (skipped.job_id, "embedding:delete" in skipped.reason) == (job_id, True)
        assert jobs.job(job_id).status == "failed"
        may = replace(CALLER, scopes=("orchestrator:write", "embedding:delete"))
        assert retries.one(may, job_id).attempt == 2


@pytest.mark.shows("P080")
def test_what_is_done_for_another_caller_is_bound_by_the_list_of_the_internal_key() -> None:
    request = SubmitRequest(url="https://example.com/a", on_behalf_of="somebody-else")
    owner = owner_of(replace(CALLER, internal=True, scopes=("orchestrator:write",)), request)
    assert (owner.caller_id, owner.internal) == ("somebody-else", False)
    owner.require("orchestrator:write")
    with pytest.raises(MissingScope):
        owner.require_values({"job_type": "delete"})
    # An internal key without a list passes none on.
    owner_of(replace(CALLER, internal=True), request).require_values({"job_type": "delete"})
