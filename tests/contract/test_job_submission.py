"""Submits on Postgres: duplicates, idempotency keys, dependencies, batches."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.queries import BatchLine
from tests.support.job_stores import Jobs, postgres_jobs
from tests.support.jobs import CALLER, URL, chunked, embedded, failed, new_job, scraped, submitted


@pytest.fixture
def jobs(database_url: str) -> Iterator[Jobs]:
    with postgres_jobs(database_url) as found:
        yield found


def finish(jobs: Jobs, job_id: str) -> None:
    jobs.apply(scraped(job_id), chunked(job_id), embedded(job_id))


def code_of(jobs: Jobs, job_id: str) -> str | None:
    error = jobs.job(job_id).error
    return error.code if error else None


def test_a_duplicate_of_a_job_in_flight_returns_that_job(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    ((again,), _) = submitted(jobs.store, new_job())
    assert (again.job_id, again.deduplicated) == (first, True)
    assert again.expected_by == jobs.job(first).expected_by is not None
    ((forced,), _) = submitted(jobs.store, new_job(forced=True))
    assert (forced.job_id == first, forced.deduplicated) == (False, False)
    finish(jobs, first)
    ((fresh,), _) = submitted(jobs.store, new_job())
    assert (fresh.job_id == first, fresh.deduplicated) == (False, False)


def test_a_duplicate_within_one_submit_is_one_job(jobs: Jobs) -> None:
    accepted, _ = submitted(jobs.store, new_job(), new_job("https://example.com/b"), new_job())
    assert [one.deduplicated for one in accepted] == [False, False, True]
    assert accepted[0].job_id == accepted[2].job_id
    assert len(jobs.find()) == 2


def test_another_callers_job_on_the_same_url_is_another_document(jobs: Jobs) -> None:
    mine = jobs.submit(new_job())
    ((theirs,), _) = submitted(jobs.store, new_job(caller_id="somebody-else"))
    assert (theirs.job_id == mine, theirs.deduplicated) == (False, False)


@pytest.mark.shows("R172")
def test_in_a_shared_corpus_every_caller_has_its_own_job(jobs: Jobs) -> None:
    shared, url = CorpusIsolation.SHARED, "https://example.com/a"
    stranger = CallerContext("somebody-else")
    mine = jobs.send(isolation=shared, url=url)
    theirs = jobs.send(ctx=stranger, isolation=shared, urls=[url, "https://example.com/b"])
    assert theirs.job_ids is not None
    assert (theirs.deduplicated, mine.job_id in theirs.job_ids) == (False, False)
    found = [job for job in (*jobs.find(), *jobs.find(stranger.caller_id)) if job.url == url]
    assert len(found) == 2
    assert len({job.document_id for job in found}) == 1
    again = jobs.send(isolation=shared, url=url)
    assert (again.job_id, again.deduplicated) == (mine.job_id, True)


@pytest.mark.shows("R172")
def test_a_retry_beside_another_callers_job_does_not_name_it(jobs: Jobs) -> None:
    shared, url = CorpusIsolation.SHARED, "https://example.com/a"
    mine = jobs.send(isolation=shared, url=url)
    jobs.cancel(mine.job_id)
    theirs = jobs.send(ctx=CallerContext("somebody-else"), isolation=shared, url=url)
    with pytest.raises(CallerError) as refused:
        jobs.retry(mine.job_id)
    assert refused.value.code == "invalid_transition"
    assert theirs.job_id not in refused.value.message


def test_the_same_key_answers_as_it_did_the_first_time(jobs: Jobs) -> None:
    first = jobs.send("k", url=URL)
    jobs.apply(failed(first.job_id))
    assert jobs.send("k", url=URL) == first
    assert [job.job_id for job in jobs.find()] == [first.job_id]


def test_the_same_key_for_another_body_is_a_conflict(jobs: Jobs) -> None:
    jobs.send("k", url=URL)
    with pytest.raises(CallerError) as refused:
        jobs.send("k", url="https://example.com/b")
    assert refused.value.code == "idempotency_conflict"
    assert len(jobs.find()) == 1


def test_a_key_belongs_to_its_caller_and_to_its_day(jobs: Jobs) -> None:
    first = jobs.send("k", url=URL)
    assert jobs.send("k", CallerContext(caller_id="somebody-else"), url=URL).job_id != first.job_id
    jobs.age_keys()
    later = jobs.send("k", url="https://example.com/b")
    assert later.job_id != first.job_id
    assert jobs.send("k", url="https://example.com/b") == later


def test_a_refused_submit_leaves_its_key_free(jobs: Jobs) -> None:
    with pytest.raises(CallerError):
        jobs.send("k", url=URL, depends_on=[str(uuid.uuid4())])
    assert jobs.send("k", url=URL).url_count == 1


def test_a_job_waits_until_all_that_it_depends_on_are_done(jobs: Jobs) -> None:
    first, second = jobs.submit(new_job()), jobs.submit(new_job("https://example.com/b"))
    waiting = new_job("https://example.com/c", depends_on=(first, second))
    assert submitted(jobs.store, waiting)[1] == []
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
    assert [row.id for row in submitted(jobs.store, follower)[1]] == [follower.first.id]


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_a_failed_dependency_fails_its_dependents_transitively(jobs: Jobs, how: str) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    third = jobs.submit(new_job("https://example.com/c", depends_on=(second,)))
    aside = jobs.submit(new_job("https://example.com/d"))
    if how == "fail":
        jobs.apply(failed(first, code="http_404"))
    else:
        jobs.cancel(first)
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
    submitted(jobs.store, theirs)
    for position, wanted in enumerate([(theirs.job_id,), (mine, "no-such-job")]):
        with pytest.raises(CallerError) as refused:
            submitted(jobs.store, new_job("https://example.com/b", depends_on=wanted))
        assert (refused.value.code, refused.value.field) == (
            "validation_error",
            f"body.depends_on.{position}",
        )
    assert len(jobs.find()) == 1


def test_all_dependents_of_a_job_are_found_and_a_cycle_is(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    third = jobs.submit(new_job("https://example.com/c", depends_on=(second,)))

    def work(tx: JobsTx) -> tuple[list[str], bool, bool]:
        found, before = tx.lock_dependents([first]), tx.has_cycle([third])
        tx.insert_dependencies([first], [third])
        return found, before, tx.has_cycle([third])

    assert jobs.store.transaction(work) == (sorted([second, third]), False, True)


def test_a_retried_job_waits_for_its_dependencies_again(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    jobs.apply(failed(first))
    with pytest.raises(CallerError, match=first):
        jobs.retry(second, "m-1")
    jobs.retry(first, "m-2")
    assert jobs.retry(second, "m-3").job.status == "pending"
    jobs.apply(scraped(first, 2), chunked(first, 2), embedded(first, 2))
    assert jobs.job(second).status == "scraping"


def test_a_canceled_waiting_job_is_failed_and_never_starts(jobs: Jobs) -> None:
    first = jobs.submit(new_job())
    second = jobs.submit(new_job("https://example.com/b", depends_on=(first,)))
    jobs.cancel(second)
    finish(jobs, first)
    assert code_of(jobs, second) == "canceled"


def counted(jobs: Jobs, caller_id: str, batch_id: str) -> list[BatchLine]:
    return jobs.store.read(lambda tx: tx.count_batch(caller_id, batch_id))


def test_a_batch_is_counted_for_its_owner(jobs: Jobs) -> None:
    batch_id = str(uuid.uuid4())
    batch = [new_job(f"https://example.com/{at}", batch_id=batch_id) for at in range(3)]
    submitted(jobs.store, *batch)
    finish(jobs, batch[0].job_id)
    jobs.apply(failed(batch[1].job_id, code="http_404"))
    found = counted(jobs, CALLER.caller_id, batch_id)
    assert sorted(found, key=lambda line: line.status) == [
        BatchLine(JobStatus.DONE, None, 1),
        BatchLine(JobStatus.FAILED, "http_404", 1),
        BatchLine(JobStatus.SCRAPING, None, 1),
    ]
    assert counted(jobs, "somebody-else", batch_id) == []
    listed = jobs.find(batch_id=batch_id, code="http_404")
    assert [job.job_id for job in listed] == [batch[1].job_id]


def test_a_jobs_original_tells_what_went_into_its_result(jobs: Jobs) -> None:
    new = new_job(payload_digest="d" * 64)
    job_id = jobs.submit(new)
    finish(jobs, job_id)
    original = jobs.store.read(lambda tx: tx.original(CALLER.caller_id, job_id))
    assert original is not None
    assert (original.job, original.target) == (jobs.job(job_id), new.target)
    assert (original.payload_digest, original.stored) == ("d" * 64, None)
    assert original.facts["content_sha256"] == "0" * 64
    assert {"text_sha256", "chunks_sha256", "model", "dimension"} <= original.facts.keys()
    assert jobs.store.read(lambda tx: tx.original("somebody-else", job_id)) is None


def test_priority_digest_and_origin_are_kept(jobs: Jobs) -> None:
    job_id = jobs.submit(new_job(priority=7, replay_of="another", forced=True))
    assert (jobs.job(job_id).priority, jobs.job(job_id).replay_of) == (7, "another")


def test_a_repeat_across_a_deployment_has_the_same_digest(jobs: Jobs) -> None:
    """The text is what the release before digested, which knew no `on_behalf_of`."""
    before = (
        '{"url":"https://example.com/a","urls":null,"corpus_name":"docs","job_type":"index","priority":50,'
        '"depends_on":[],"force":false}'
    )
    first = jobs.send("k", url="https://example.com/a")
    digest = jobs.store.read(lambda tx: tx.kept_answer(CALLER.caller_id, "k"))
    assert digest is not None
    assert digest[0] == hashlib.sha256(before.encode()).hexdigest()
    assert jobs.send("k", url="https://example.com/a") == first
