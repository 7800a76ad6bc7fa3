"""One suite for every job store: the twin may be trusted because Postgres passes the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from indexmill.contracts.identity import new_id
from indexmill.contracts.messages import Retrying, StageFailure, StageResult, stage_result
from indexmill.orchestrator.store.jobs import DeadLetter, JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.results import Verdict
from indexmill.platform.postgres.database import Database
from tests.support.jobs import (
    CALLER,
    applied,
    embedded,
    failed,
    found_jobs,
    new_job,
    scraped,
    stored_job,
    submitted,
)
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs

Age = Callable[[int], None]


@pytest.fixture(params=["twin", "postgres"])
def store_and_age(request: pytest.FixtureRequest) -> Iterator[tuple[JobStore, Age]]:
    """Yield a store and a way to let seconds pass in it."""
    if request.param == "twin":
        clock = FrozenClock()
        yield InMemoryJobs(clock), clock.tick
        return
    database = Database(request.getfixturevalue("database_url"))

    def age(seconds: int) -> None:
        past = f"now() - interval '{seconds} seconds'"
        database.connection().execute(f"UPDATE jobs SET updated_at = {past}")
        database.connection().execute(f"UPDATE outbox SET claimed_until = {past}")

    yield JobStore(database), age
    database.close()


@pytest.fixture
def store(store_and_age: tuple[JobStore, Age]) -> JobStore:
    return store_and_age[0]


@pytest.fixture
def real(database_url: str) -> Iterator[JobStore]:
    """Yield jobs on Postgres, for what the twin leaves out."""
    database = Database(database_url)
    yield JobStore(database)
    database.close()


def apply(store: JobStore, *results: StageResult) -> list[Verdict]:
    changes = applied(store, *results)
    return [change.verdict for change in changes]


@pytest.mark.shows("S1")
def test_a_submitted_job_is_there_for_its_caller_only(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert (found.status, found.url, found.corpus_name) == ("scraping", job.submitted_url, "docs")
    assert found.created_at.tzinfo is not None
    assert stored_job(store, "somebody-else", job.job_id) is None
    assert stored_job(store, CALLER.caller_id, "no-such-job") is None


def test_submitting_the_same_ids_again_changes_nothing(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    apply(store, failed(job.job_id))
    submitted(store, job)
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert found.status == "failed"


def test_a_submitters_message_is_claimed_until_it_is_sent_or_times_out(
    store_and_age: tuple[JobStore, Age],
) -> None:
    store, age = store_and_age
    job = new_job()
    submitted(store, job)
    assert store.claim(10) == []
    age(31)
    assert [row.id for row in store.claim(10)] == [job.first.id]
    assert store.claim(10) == []
    age(31)
    store.mark_sent([job.first.id])
    assert store.claim(10) == []


@pytest.mark.fault("F27")
def test_a_failed_send_is_counted_and_parked_in_the_end(store_and_age: tuple[JobStore, Age]) -> None:
    store, age = store_and_age
    submitted(store, new_job())
    for tries in range(10):
        age(31)
        (row,) = store.claim(10)
        assert row.tries == tries
        store.mark_failed([row.id], "queue_unavailable")
    age(31)
    assert store.claim(10) == []


def test_an_unavailable_queue_parks_nothing(store_and_age: tuple[JobStore, Age]) -> None:
    store, age = store_and_age
    submitted(store, new_job())
    for _ in range(15):
        age(31)
        (row,) = store.claim(10)
        assert row.tries == 0
        store.mark_failed([row.id], "queue_unavailable", unavailable=True)


@pytest.mark.fault("F64")
def test_a_failure_is_of_the_stores_time_whatever_a_process_thinks(store: JobStore) -> None:
    job, wrong = new_job(), FrozenClock()
    submitted(store, job)
    wrong.tick(-600)
    (change,) = applied(store, failed(job.job_id), clock=wrong)
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert found.error is not None
    assert change.error is not None
    assert (found.error.at, found.error.code) == (found.updated_at, "http_403")
    assert found.error.at != change.error.at
    assert isinstance(store, InMemoryJobs | JobStore)
    snapshot = store.read(lambda tx: tx.job_events(CALLER.caller_id, job.job_id, 0))
    assert snapshot is not None
    assert snapshot.events[-1].error == found.error


@pytest.mark.fault("F64")
@pytest.mark.parametrize(("retry_in_s", "waits"), [(90.5, 90.5), (None, None)], ids=["new", "as before"])
def test_the_next_try_is_of_the_stores_time(
    store: JobStore, retry_in_s: float | None, waits: float | None
) -> None:
    job = new_job()
    submitted(store, job)
    by_its_clock = FrozenClock().now()
    note = Retrying(tries=2, next_retry_at=by_its_clock, cause="http_503", retry_in_s=retry_in_s)
    report = scraped(job.job_id).model_copy(update={"status": "retrying", "document": None, "retrying": note})
    assert apply(store, report) == [Verdict.WAIT]
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert found.next_retry_at is not None
    if waits is None:
        assert found.next_retry_at == by_its_clock
    else:
        assert found.next_retry_at - found.updated_at == timedelta(seconds=waits)


def waiting(job_id: str, wait_s: float, code: str | None, *, cause: str = "", tries: int = 1) -> StageResult:
    """Return the report of a worker whose try failed by `code`, or that waits for no error."""
    failure = StageFailure(code=code, message=f"It was {code}") if code else None
    note = Retrying(
        tries=tries,
        next_retry_at=FrozenClock().now(),
        retry_in_s=wait_s,
        cause=cause or code or "",
        failure=failure,
    )
    return stage_result(
        message_id=new_id(), job_id=job_id, stage="scraping", status="retrying", retrying=note
    )


def reported(store: JobStore, job_id: str) -> tuple[str | None, int | None, str | None]:
    """Return code, tries, and reason of the wait."""
    found = stored_job(store, CALLER.caller_id, job_id)
    assert found is not None
    assert found.last_error is None or found.last_error.message == f"It was {found.last_error.code}"
    return (
        found.last_error.code if found.last_error else None,
        found.attempts,
        found.waiting.reason if found.waiting else None,
    )


def test_a_job_keeps_the_last_error_until_its_stage_ends(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    assert reported(store, job.job_id) == (None, None, None)
    apply(store, waiting(job.job_id, 2, "dns_error"))
    assert reported(store, job.job_id) == ("dns_error", 1, None)
    apply(store, waiting(job.job_id, 4, "http_503", tries=2))
    assert reported(store, job.job_id) == ("http_503", 2, None)
    # A site that is busy is no error, and the one before stays; a failing one says its own.
    apply(store, waiting(job.job_id, 60, None, cause="domain_busy", tries=2))
    assert reported(store, job.job_id) == ("http_503", 2, "domain")
    apply(store, waiting(job.job_id, 120, "tls_error", cause="domain_failing", tries=2))
    assert reported(store, job.job_id) == ("tls_error", 2, "domain_failing")
    apply(store, scraped(job.job_id))
    assert reported(store, job.job_id) == (None, None, None)


def test_a_failed_job_has_no_last_error_beside_its_error(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    apply(store, waiting(job.job_id, 2, "dns_error"), failed(job.job_id))
    assert reported(store, job.job_id)[0] is None
    apply(store, waiting(job.job_id, 2, "dns_error"))
    assert reported(store, job.job_id)[0] is None


def test_reports_that_arrive_in_the_wrong_order_leave_the_later_one(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    apply(store, waiting(job.job_id, 240, "http_503", tries=3))
    apply(store, waiting(job.job_id, 2, "dns_error"))
    assert reported(store, job.job_id) == ("http_503", 3, None)


def test_results_move_the_job_and_leave_the_next_message(store_and_age: tuple[JobStore, Age]) -> None:
    store, age = store_and_age
    job = new_job()
    submitted(store, job)
    store.mark_sent([job.first.id])
    changes = applied(store, scraped(job.job_id))
    (row,) = changes[0].outbox
    assert (row.stage, row.job_id) == ("chunking", job.job_id)
    age(31)
    assert [(found.id, found.payload) for found in store.claim(10)] == [(row.id, row.payload)]
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert (found.status, found.title) == ("chunking", "Title")


@pytest.mark.fault("F11")
def test_a_result_counts_once_also_within_one_batch(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    result = scraped(job.job_id)
    assert apply(store, result, result) == [Verdict.ADVANCE, Verdict.LATE]
    assert apply(store, result) == [Verdict.LATE]


def test_two_stages_of_one_job_may_come_in_one_batch(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    late = failed(job.job_id, stage="scraping")
    assert apply(store, scraped(job.job_id), late) == [Verdict.ADVANCE, Verdict.LATE]


@pytest.mark.fault("F12")
def test_an_early_result_may_count_later(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    early = embedded(job.job_id)
    assert apply(store, early) == [Verdict.EARLY]
    assert apply(store, early) == [Verdict.EARLY]


@pytest.mark.fault("F14")
def test_a_failure_is_kept_with_its_error(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    assert apply(store, failed(job.job_id, code="http_404")) == [Verdict.FAIL]
    found = stored_job(store, CALLER.caller_id, job.job_id)
    assert found is not None
    assert found.error is not None
    assert (found.status, found.failed_stage, found.error.code) == ("failed", "scraping", "http_404")
    assert apply(store, scraped(job.job_id)) == [Verdict.LATE]


def test_an_older_attempt_and_an_unknown_job_change_nothing(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    assert apply(store, scraped(job.job_id, attempt=2), scraped("nobody")) == [Verdict.EARLY, Verdict.LATE]


@pytest.mark.shows("S1")
def test_the_list_is_the_callers_own_newest_first_and_filtered(real: JobStore) -> None:
    jobs = [new_job(f"https://example.com/{n}") for n in range(5)]
    for job in jobs:
        submitted(real, job)
    submitted(real, new_job(caller_id="somebody-else"))
    apply(real, failed(jobs[0].job_id))
    everything = found_jobs(real, JobFilter(CALLER.caller_id))
    assert {job.job_id for job in everything} == {job.job_id for job in jobs}
    order = [(job.created_at, job.job_id) for job in everything]
    assert order == sorted(order, reverse=True)
    rest = found_jobs(real, JobFilter(CALLER.caller_id, before=order[1], limit=2))
    assert [(job.created_at, job.job_id) for job in rest] == order[2:4]
    only_failed = found_jobs(real, JobFilter(CALLER.caller_id, status="failed", failed_stage="scraping"))
    assert [job.job_id for job in only_failed] == [jobs[0].job_id]
    assert found_jobs(real, JobFilter(CALLER.caller_id, corpus_name="other")) == []
    assert len(found_jobs(real, JobFilter(CALLER.caller_id, url="https://example.com/3"))) == 1


def test_a_jobs_state_is_read_without_a_caller(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    state = store.read(lambda tx: tx.state(job.job_id))
    assert state is not None
    assert (state.attempt, state.target.document_id) == (1, job.target.document_id)
    assert store.read(lambda tx: tx.state("nobody")) is None


def test_a_dead_letter_with_odd_characters_is_kept_once(store: JobStore) -> None:
    odd = DeadLetter("q", 'NUL \0 and "quotes" \ud800', 3, "be\0cause \ud800", message_id="a\0b")
    assert store.record_dead_letter(odd)
    known = DeadLetter("q", "", 100, "because", job_id="job", source_id="sqs-1")
    assert store.record_dead_letter(known)
    assert store.record_dead_letter(known), "the same receive: the first answer was lost"
    assert not store.record_dead_letter(replace(known, receive_count=101))
    assert store.record_dead_letter(DeadLetter("other", "", 7, "because", source_id="sqs-1"))
    assert kept_dead_letters(store) == [(3, None), (100, "job"), (7, None)]


def kept_dead_letters(store: JobStore) -> list[tuple[int, str | None]]:
    """Return receive count and job of each dead letter, oldest first; no use case reads them yet."""
    if isinstance(store, InMemoryJobs):
        return [(letter.receive_count, letter.job_id) for letter in store.letters]
    assert isinstance(store, JobStore)
    rows = store._database.connection().execute("SELECT receive_count, job_id FROM dead_letters ORDER BY id")
    return [(int(count), job_id) for count, job_id in rows.fetchall()]
