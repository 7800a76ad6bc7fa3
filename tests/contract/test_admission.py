"""Admission on Postgres: which jobs start when."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.job import Job, Waiting
from indexmill.orchestrator.admission.admit import Quota, admit_all
from indexmill.orchestrator.store.admission import INTERNAL, JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.rows import NewJob, OutboxRow
from indexmill.orchestrator.submission.submit import Accepted
from indexmill.platform.postgres.database import Database
from tests.support.jobs import (
    applied,
    chunked,
    embedded,
    failed,
    found_jobs,
    new_job,
    scraped,
    stored_job,
    submitted,
)

QUOTAS = {
    "free": Quota(max_active=2, max_per_hour=5),
    "pro": Quota(max_active=50, burst=3, chunks_per_day=10),
    "enterprise": Quota(max_active=3),
}
LIMITS = JobLimits(QUOTAS, window=6, max_pending=20)


@dataclass
class Harness:
    """A store, with what a test does to it."""

    store: JobStore
    age: Callable[[int], None]
    pause: Callable[[bool], None]
    count: int = 0

    def jobs(self, count: int, caller: str, tier: str, priority: int = 50) -> list[NewJob]:
        """Return new jobs of one caller."""
        self.count += count
        urls = [f"https://example.com/{self.count}/{at}" for at in range(count)]
        return [replace(new_job(url, caller_id=caller), tier=tier, priority=priority) for url in urls]

    def submit(
        self, count: int, caller: str = "ann", tier: str = "enterprise", priority: int = 50
    ) -> list[str]:
        """Submit jobs and return their ids."""
        accepted, _ = self.submission(count, caller, tier, priority)
        return [each.job_id for each in accepted]

    def submission(
        self, count: int, caller: str = "ann", tier: str = "enterprise", priority: int = 50
    ) -> tuple[list[Accepted], list[OutboxRow]]:
        """Submit jobs; return the result for each, and the messages of those that were admitted."""
        return submitted(self.store, *self.jobs(count, caller, tier, priority))

    def end(self, *job_ids: str) -> list[str]:
        """Let jobs fail; returns whose messages follow."""
        changes = applied(self.store, *(failed(job_id) for job_id in job_ids))
        return [row.job_id for change in changes for row in change.outbox]

    def succeed(self, job_id: str, chunks: int) -> None:
        """Take a job through all stages."""
        for result in (scraped(job_id), chunked(job_id), embedded(job_id, chunk_count=chunks)):
            applied(self.store, result)

    def job(self, job_id: str, caller: str = "ann") -> Job:
        """Return a job."""
        found = stored_job(self.store, caller, job_id)
        assert found is not None
        return found

    def active(self, caller: str = "ann") -> set[str]:
        """Return the caller's jobs in flight."""
        found = found_jobs(self.store, JobFilter(caller, limit=200))
        return {job.job_id for job in found if not job.status.terminal and job.status != "pending"}

    def waiting(self, job_id: str, caller: str = "ann") -> Waiting:
        """Return what a job waits for."""
        found = self.job(job_id, caller).waiting
        assert found is not None
        return found


@pytest.fixture
def harness(database_url: str) -> Iterator[Harness]:
    """Yield a store with `LIMITS`."""
    database = Database(database_url)

    def age(seconds: int) -> None:
        for column in ("created_at", "updated_at", "admitted_at", "ended_at"):
            shifted = f"{column} = {column} - interval '{seconds} seconds'"
            database.connection().execute(f"UPDATE jobs SET {shifted}")

    def pause_stage(wanted: bool) -> None:
        put = "INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'r', 'o')"
        database.connection().execute(put if wanted else "DELETE FROM pauses")

    yield Harness(JobStore(database, LIMITS), age, pause_stage)
    database.close()


def test_what_is_beyond_the_quota_waits_in_its_turn(harness: Harness) -> None:
    accepted, messages = harness.submission(6)
    ids = [each.job_id for each in accepted]
    assert {row.job_id for row in messages} == harness.active()
    assert len(harness.active()) == 3
    waiting = [harness.waiting(job_id) for job_id in ids if job_id not in harness.active()]
    assert {each.reason for each in waiting} == {"quota_active"}
    assert sorted(each.position or 0 for each in waiting) == [1, 2, 3]
    assert harness.job(next(iter(harness.active()))).waiting is None
    listed = {job.job_id: job.waiting for job in found_jobs(harness.store, JobFilter("ann")) if job.waiting}
    assert {job_id: harness.waiting(job_id).position for job_id in listed} == {
        job_id: reported.position for job_id, reported in listed.items()
    }


def test_a_job_that_ends_lets_the_next_one_start_and_its_message_follows(harness: Harness) -> None:
    harness.submit(4)
    first, *others = sorted(harness.active())
    (started,) = harness.end(first)
    assert harness.active() == {*others, started}


def test_a_message_is_not_sent_before_its_job_starts(harness: Harness) -> None:
    harness.submit(4)
    harness.age(3600)
    waiting = {job.job_id for job in found_jobs(harness.store, JobFilter("ann", status="pending"))}
    assert len(waiting) == 1
    assert waiting.isdisjoint(row.job_id for row in harness.store.claim(10))


def test_a_higher_priority_starts_before_and_waiting_makes_up_for_it(harness: Harness) -> None:
    harness.submit(3)
    (low,) = harness.submit(1, priority=0)
    (high,) = harness.submit(1, priority=100)
    assert (harness.waiting(high).position, harness.waiting(low).position) == (1, 2)
    harness.age(51 * 60)
    (late,) = harness.submit(1, priority=100)
    assert [harness.waiting(job_id).position for job_id in (high, low, late)] == [1, 2, 3]
    assert harness.end(min(harness.active())) == [high]


def test_the_hourly_quota_opens_as_the_hour_passes(harness: Harness) -> None:
    for _ in range(5):
        (job_id,) = harness.submit(1, "bob", "free")
        harness.end(job_id)
    (waits,) = harness.submit(1, "bob", "free")
    reported = harness.waiting(waits, "bob")
    assert reported.reason == "quota_hourly"
    assert reported.next_eligible_at is not None
    harness.age(3500)
    assert admit_all(harness.store) == []
    harness.age(101)
    assert [row.job_id for row in admit_all(harness.store)] == [waits]
    assert harness.active("bob") == {waits}


def test_a_burst_is_spread_over_minutes(harness: Harness) -> None:
    ids = harness.submit(5, "eve", "pro")
    assert len(harness.active("eve")) == 3
    waits = min(set(ids) - harness.active("eve"))
    assert harness.waiting(waits, "eve").reason == "quota_hourly"
    harness.age(61)
    assert len(admit_all(harness.store)) == 2


def test_chunks_of_the_day_are_counted_and_the_next_day_is_a_new_one(harness: Harness) -> None:
    (first,) = harness.submit(1, "eve", "pro")
    harness.succeed(first, chunks=10)
    (waits,) = harness.submit(1, "eve", "pro")
    reported = harness.waiting(waits, "eve")
    assert reported.reason == "quota_chunks"
    assert reported.next_eligible_at is not None
    assert (reported.next_eligible_at.hour, reported.next_eligible_at.minute) == (0, 0)
    assert harness.active("eve") == set()


def test_chunks_of_a_tier_without_a_limit_are_nobodys_business(harness: Harness) -> None:
    (first,) = harness.submit(1)
    harness.succeed(first, chunks=10_000)
    (second,) = harness.submit(1)
    assert harness.active() == {second}


def test_an_internal_caller_has_no_quota_but_shares_the_window(harness: Harness) -> None:
    ids = harness.submit(8, "system", INTERNAL)
    assert len(harness.active("system")) == LIMITS.window
    waits = min(set(ids) - harness.active("system"))
    assert harness.waiting(waits, "system").reason == "capacity"


def test_a_free_place_goes_to_the_caller_with_the_fewest_jobs_in_flight(harness: Harness) -> None:
    harness.submit(10, "system", INTERNAL)
    (other,) = harness.submit(1, "zoe")
    assert harness.waiting(other, "zoe").reason == "capacity"
    assert harness.end(min(harness.active("system"))) == [other]
    assert len(harness.end(min(harness.active("system")))) == 1
    assert len(harness.active("system")) == LIMITS.window - 1


def test_places_are_taken_in_turns_by_all_who_wait(harness: Harness) -> None:
    harness.submit(12, "system", INTERNAL)
    for caller in ("kim", "lee", "max"):
        harness.submit(4, caller)
    for _ in range(3):
        harness.end(min(harness.active("system")))
    assert [len(harness.active(caller)) for caller in ("system", "kim", "lee", "max")] == [3, 1, 1, 1]


def test_a_paused_first_stage_admits_nothing_until_the_pause_ends(harness: Harness) -> None:
    harness.pause(True)
    (job_id,) = harness.submit(1)
    assert harness.waiting(job_id) == Waiting(reason="paused", position=1)
    assert harness.job(job_id).expected_by is None
    assert admit_all(harness.store) == []
    harness.pause(False)
    assert [row.job_id for row in admit_all(harness.store)] == [job_id]


def test_too_many_pending_jobs_are_refused_all_together(harness: Harness) -> None:
    harness.submit(3)
    harness.submit(19)
    with pytest.raises(CallerError) as caught:
        harness.submit(2)
    assert (caught.value.code, caught.value.http_status) == ("quota_exceeded", 429)
    assert caught.value.retry_after is not None
    assert len(found_jobs(harness.store, JobFilter("ann", limit=200))) == 22
    harness.submit(1)
    harness.submit(1, "zoe")


def test_a_promise_is_kept_with_the_job_and_grows_with_the_line(harness: Harness) -> None:
    accepted, _ = harness.submission(10)
    jobs = [harness.job(each.job_id) for each in accepted]
    assert [each.expected_by for each in accepted] == [job.expected_by for job in jobs]
    started = [job.expected_by for job in jobs if job.waiting is None and job.expected_by]
    waiting = {job.waiting.position: job.expected_by for job in jobs if job.waiting and job.expected_by}
    assert (len(started), len(waiting)) == (3, 7)
    in_turn = [*sorted(started), *(waiting[position] for position in sorted(waiting, key=lambda at: at or 0))]
    assert in_turn == sorted(in_turn)
    assert jobs[0].created_at < in_turn[0]
    assert in_turn[-1] - in_turn[0] > timedelta(seconds=1)


def test_a_new_tier_lifts_the_whole_line(harness: Harness) -> None:
    harness.submit(4, "bob", "free")
    assert len(harness.active("bob")) == 2
    harness.age(60)
    harness.submit(1, "bob", "enterprise")
    assert len(harness.active("bob")) == 3


def test_a_job_that_waits_for_another_says_for_which_and_takes_no_turn(harness: Harness) -> None:
    (first,) = harness.submit(1)
    (waits,) = (replace(job, depends_on=(first,)) for job in harness.jobs(1, "ann", "enterprise"))
    ((accepted,), _) = submitted(harness.store, waits)
    assert accepted.expected_by is None
    assert harness.job(waits.job_id).expected_by is None
    assert harness.waiting(waits.job_id) == Waiting(reason="dependency", blocked_by=[first])
    harness.succeed(first, chunks=1)
    assert harness.active() == {waits.job_id}
