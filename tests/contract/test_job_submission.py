"""One suite for what a submit promises over every store: duplicates, keys, dependencies, batches."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.ports import Accepted, JobFilter, Once
from indexmill.orchestrator.verb_ports import BatchLine
from tests.support.job_stores import Jobs, postgres_jobs, twin_jobs
from tests.support.jobs import CALLER, chunked, embedded, failed, new_job, scraped

AT = datetime(2026, 3, 14, 12, tzinfo=UTC)


@pytest.fixture(params=["twin", "postgres"])
def jobs(request: pytest.FixtureRequest) -> Iterator[Jobs]:
    if request.param == "twin":
        yield twin_jobs()
        return
    with postgres_jobs(request.getfixturevalue("database_url")) as found:
        yield found


def ids(accepted: Sequence[Accepted], _by: object = None) -> str:
    return '{"ids": "' + " ".join(one.job_id for one in accepted) + '"}'


def once(key: str = "k", digest: str = "d") -> Once:
    return Once(key, digest, ids)


def finish(jobs: Jobs, job_id: str) -> None:
    jobs.apply(scraped(job_id), chunked(job_id), embedded(job_id))


def code_of(jobs: Jobs, job_id: str) -> str | None:
    error = jobs.job(job_id).error
    return error.code if error else None


def test_a_duplicate_in_flight_is_the_job_at_work(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    again = jobs.store.submit([new_job()])
    assert again.accepted == [Accepted(first, JobStatus.SCRAPING, deduplicated=True)]
    assert again.expected_by == jobs.job(first).expected_by is not None
    (forced,) = jobs.store.submit([new_job(forced=True)]).accepted
    assert (forced.job_id == first, forced.deduplicated) == (False, False)
    finish(jobs, first)
    (fresh,) = jobs.store.submit([new_job()]).accepted
    assert (fresh.job_id == first, fresh.deduplicated) == (False, False)


def test_a_duplicate_within_one_submit_is_one_job(jobs: Jobs) -> None:
    twice = [new_job(), new_job("https://example.com/b"), new_job()]
    accepted = jobs.store.submit(twice).accepted
    assert [one.deduplicated for one in accepted] == [False, False, True]
    assert accepted[0].job_id == accepted[2].job_id
    assert len(jobs.store.find(JobFilter(CALLER.caller_id))) == 2


def test_somebody_elses_job_on_the_same_url_is_another_document(jobs: Jobs) -> None:
    mine = jobs.submit(new_job())
    (theirs,) = jobs.store.submit([new_job(caller_id="somebody-else")]).accepted
    assert (theirs.job_id == mine, theirs.deduplicated) == (False, False)


def test_the_same_key_answers_as_it_did_the_first_time(jobs: Jobs) -> None:
    first = jobs.store.submit([new_job()], once())
    again = jobs.store.submit([new_job("https://example.com/not-looked-at")], once())
    assert (again.accepted, again.outbox) == ([], [])
    assert again.answer is not None
    assert first.accepted[0].job_id in again.answer
    assert len(jobs.store.find(JobFilter(CALLER.caller_id))) == 1


def test_the_same_key_for_another_body_is_a_conflict(jobs: Jobs) -> None:
    jobs.store.submit([new_job()], once())
    with pytest.raises(CallerError) as refused:
        jobs.store.submit([new_job("https://example.com/b")], once(digest="other"))
    assert refused.value.code == "idempotency_conflict"
    assert len(jobs.store.find(JobFilter(CALLER.caller_id))) == 1


def test_a_key_belongs_to_its_caller_and_to_its_day(jobs: Jobs) -> None:
    jobs.store.submit([new_job()], once())
    assert len(jobs.store.submit([new_job(caller_id="somebody-else")], once()).accepted) == 1
    jobs.age_keys()
    later = jobs.store.submit([new_job("https://example.com/b")], once(digest="other"))
    assert len(later.accepted) == 1
    assert jobs.store.submit([new_job()], once(digest="other")).answer == ids(later.accepted)


def test_a_refused_submit_leaves_its_key_free(jobs: Jobs) -> None:
    with pytest.raises(CallerError):
        jobs.store.submit([new_job(depends_on=(str(uuid.uuid4()),))], once())
    assert len(jobs.store.submit([new_job()], once()).accepted) == 1


def test_a_job_waits_until_all_that_it_depends_on_are_done(jobs: Jobs) -> None:
    first, second = jobs.submit(new_job()), jobs.submit(new_job("https://example.com/b"))
    waiting = new_job("https://example.com/c", depends_on=(first, second))
    submission = jobs.store.submit([waiting])
    assert submission.outbox == []
    assert jobs.job(waiting.job_id).status == "pending"
    finish(jobs, first)
    assert jobs.job(waiting.job_id).status == "pending"
    jobs.apply(scraped(second), chunked(second))
    (change,) = jobs.changes(embedded(second))
    assert [row.id for row in change.outbox] == [waiting.first.id]
    assert jobs.job(waiting.job_id).status == "scraping"


def test_a_job_that_depends_on_done_ones_starts_at_once(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    finish(jobs, first)
    follower = new_job("https://example.com/b", depends_on=(first,))
    assert [row.id for row in jobs.store.submit([follower]).outbox] == [follower.first.id]


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_a_failed_dependency_fails_whoever_waits_for_it_and_those_behind(jobs: Jobs, how: str) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    third = jobs.submit(new_job("https://example.com/c", depends_on=(second,)))
    aside = jobs.submit(new_job("https://example.com/d"))
    if how == "fail":
        jobs.apply(failed(first, code="http_404"))
    else:
        jobs.verbs.cancel(CALLER.caller_id, first, "r", AT)
    assert [code_of(jobs, job_id) for job_id in (second, third)] == ["dependency_failed"] * 2
    job = jobs.job(second)
    assert (job.failed_stage, job.retryable) == ("scraping", True)
    assert job.error is not None
    assert first in job.error.message
    assert jobs.history(second) == [(1, None, "pending"), (1, "pending", "failed")]
    assert jobs.job(aside).status == "scraping"


def test_a_job_that_depends_on_a_failed_one_fails_at_once(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    jobs.apply(failed(first))
    assert code_of(jobs, jobs.submit(new_job("https://example.com/b", depends_on=(first,)))) == (
        "dependency_failed"
    )


def test_unknown_and_foreign_dependencies_are_refused(jobs: Jobs) -> None:
    mine = jobs.submit(new_job())
    theirs = new_job(caller_id="somebody-else")
    jobs.store.submit([theirs])
    for position, wanted in enumerate([(theirs.job_id,), (mine, "no-such-job")]):
        with pytest.raises(CallerError) as refused:
            jobs.store.submit([new_job("https://example.com/b", depends_on=wanted)])
        assert (refused.value.code, refused.value.field) == (
            "validation_error",
            f"body.depends_on.{position}",
        )
    assert len(jobs.store.find(JobFilter(CALLER.caller_id))) == 1


def test_a_retried_job_waits_for_its_dependencies_again(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    jobs.apply(failed(first))
    with pytest.raises(CallerError, match=first):
        jobs.verbs.retry(CALLER.caller_id, second, "m-1")
    jobs.verbs.retry(CALLER.caller_id, first, "m-2")
    assert jobs.verbs.retry(CALLER.caller_id, second, "m-3").job.status == "pending"
    jobs.apply(scraped(first, 2), chunked(first, 2), embedded(first, 2))
    assert jobs.job(second).status == "scraping"


def test_a_canceled_waiting_job_is_failed_and_nobody_starts_it(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    jobs.verbs.cancel(CALLER.caller_id, second, "r", AT)
    finish(jobs, first)
    assert code_of(jobs, second) == "canceled"


def test_a_batch_is_counted_for_its_owner(jobs: Jobs) -> None:
    batch_id = str(uuid.uuid4())
    batch = [new_job(f"https://example.com/{at}", batch_id=batch_id) for at in range(3)]
    jobs.store.submit(batch)
    finish(jobs, batch[0].job_id)
    jobs.apply(failed(batch[1].job_id, code="http_404"))
    found = jobs.verbs.batch(CALLER.caller_id, batch_id)
    assert sorted(found, key=lambda line: line.status) == [
        BatchLine(JobStatus.DONE, None, 1),
        BatchLine(JobStatus.FAILED, "http_404", 1),
        BatchLine(JobStatus.SCRAPING, None, 1),
    ]
    assert jobs.verbs.batch("somebody-else", batch_id) == []
    listed = jobs.store.find(JobFilter(CALLER.caller_id, batch_id=batch_id, code="http_404"))
    assert [job.job_id for job in listed] == [batch[1].job_id]


def test_a_jobs_original_tells_what_went_into_its_result(jobs: Jobs) -> None:
    new = new_job(payload_digest="d" * 64)
    job_id = jobs.submit(new)
    finish(jobs, job_id)
    original = jobs.verbs.original(CALLER.caller_id, job_id)
    assert original is not None
    assert (original.job, original.target) == (jobs.job(job_id), new.target)
    assert (original.payload_digest, original.stored) == ("d" * 64, None)
    assert original.facts["content_sha256"] == "0" * 64
    assert {"text_sha256", "chunks_sha256", "model", "dimension"} <= original.facts.keys()
    assert jobs.verbs.original("somebody-else", job_id) is None


def test_priority_digest_and_origin_are_kept(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job(priority=7, replay_of="another", forced=True))
    assert (jobs.job(job_id).priority, jobs.job(job_id).replay_of) == (7, "another")
