"""Jobs that their sites hold back, on Postgres: they are pending, in no queue, and leave in their turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from indexmill.contracts.job import Job
from indexmill.contracts.messages import Retrying, StageResult, stage_result
from indexmill.orchestrator.admission.admit import Quota, admit_all
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.platform.postgres.database import Database
from indexmill.platform.security.urls import DomainRates
from indexmill.platform.time import SystemClock
from tests.support.job_stores import canceled, retried
from tests.support.jobs import (
    CALLER,
    applied,
    chunked,
    embedded,
    failed,
    new_job,
    scraped,
    stored_job,
    submitted,
)

RATES = "*=0.1:2,fast.example.com=unlimited"
"""Two at once and one each ten seconds: those two are started ahead."""
AHEAD = 2


@dataclass
class Sites:
    """A store, and the time in it."""

    store: JobStore
    database: Database

    def submit(self, count: int, host: str = "slow.example.com", caller: str = CALLER.caller_id) -> list[Job]:
        """Submit pages of a site at once; return their jobs, in order."""
        jobs = [new_job(f"https://{host}/{caller}/{at}", caller_id=caller) for at in range(count)]
        accepted, _ = submitted(self.store, *jobs)
        return [self.job(each.job_id, caller) for each in accepted]

    def job(self, job_id: str, caller: str = CALLER.caller_id) -> Job:
        found = stored_job(self.store, caller, job_id)
        assert found is not None
        return found

    def refreshed(self, job: Job) -> Job:
        return self.job(job.job_id, job.url.split("/")[3])

    def age(self, seconds: int) -> None:
        by = f"interval '{seconds} seconds'"
        self.database.connection().execute(
            f"UPDATE sites SET full_at = full_at - {by}, last_at = last_at - {by}, due_at = due_at - {by}"
        )

    def reopened(self) -> Sites:
        """Return the store of another process, which has looked for no site yet."""
        return Sites(JobStore(self.database, self.store._limits), self.database)

    def admit(self) -> list[str]:
        return [row.job_id for row in admit_all(self.reopened().store)]


@pytest.fixture
def sites(database_url: str) -> Iterator[Sites]:
    database = Database(database_url)
    yield Sites(JobStore(database, JobLimits(rates=DomainRates.parse(RATES))), database)
    database.close()


def held(jobs: list[Job]) -> list[Job]:
    return [job for job in jobs if job.status == "pending"]


def test_a_site_holds_back_what_it_cannot_take_soon(sites: Sites) -> None:
    jobs = sites.submit(AHEAD + 3)
    assert len(held(jobs)) == 3
    now = SystemClock().now()
    waits = []
    for job in held(jobs):
        assert job.waiting is not None
        assert (job.waiting.reason, job.waiting.position) == ("domain", None)
        assert job.waiting.next_eligible_at is not None
        assert job.expected_by is not None
        assert job.expected_by > job.waiting.next_eligible_at
        waits.append((job.waiting.next_eligible_at - now).total_seconds())
    assert sorted(waits) == pytest.approx([5, 15, 25], abs=4)
    # Later jobs of the site, of any caller, come after those; other sites are not concerned.
    assert held(sites.submit(1, caller="other"))
    assert not held(sites.submit(1, "another.example.com"))
    assert not held(sites.submit(20, "fast.example.com"))


def test_held_back_jobs_leave_at_the_rate_by_priority_and_age(sites: Sites) -> None:
    sites.submit(AHEAD)
    last = new_job("https://slow.example.com/last")
    first = new_job("https://slow.example.com/first", priority=90)
    for each in (last, first, new_job("https://slow.example.com/middle", priority=60)):
        submitted(sites.store, each)
    assert sites.admit() == []
    sites.age(11)
    assert sites.admit() == [first.job_id]
    assert sites.job(first.job_id).waiting is None
    sites.age(3)
    assert sites.admit() == []
    sites.age(17)
    assert len(sites.admit()) == 2
    assert sites.job(last.job_id).status == "scraping"
    assert not sites.admit()


def test_callers_take_turns_at_a_site_whatever_each_has_there(sites: Sites) -> None:
    sites.submit(AHEAD)
    many = held(sites.submit(6, caller="a"))
    later = {job.job_id for caller in ("b", "c") for job in held(sites.submit(2, caller=caller))}
    left = []
    for _ in range(7):
        sites.age(11)
        left += sites.admit()
    assert later < set(left[:6]), "two each: nobody waits for the other four of the first caller"
    assert left[6] == sorted(job.job_id for job in many)[2]


def test_a_caller_who_may_start_nothing_leaves_the_turns_to_others(sites: Sites) -> None:
    limits = JobLimits({"free": Quota(max_active=AHEAD)}, rates=DomainRates.parse(RATES))
    sites = Sites(JobStore(sites.database, limits), sites.database)
    full = sites.submit(AHEAD + 4, caller="full")
    waits = held(sites.submit(2, caller="other"))
    left = []
    for _ in range(6):
        sites.age(30)
        left += sites.admit()
    assert set(left) == {job.job_id for job in waits}
    reasons = [job.waiting.reason for job in map(sites.refreshed, held(full)) if job.waiting is not None]
    assert sorted(set(reasons)) == ["domain", "quota_active"]
    assert reasons.count("domain") >= 2, "those that cannot start stay where they count for nobody"


def test_a_job_before_those_that_cannot_start_leaves_by_its_priority(database_url: str) -> None:
    limits = JobLimits({"free": Quota(max_active=AHEAD)}, rates=DomainRates.parse(RATES))
    sites = Sites(JobStore(Database(database_url), limits), Database(database_url))
    started = sites.submit(AHEAD)
    submitted(sites.store, new_job("https://slow.example.com/low", priority=0))
    submitted(sites.store, new_job("https://slow.example.com/lower", priority=0))
    submitted(sites.store, *(new_job(f"https://fast.example.com/{at}") for at in range(10)))
    sites.age(30)
    assert sites.admit() == [], "one of the two waits behind the others of its caller now"
    urgent = new_job("https://slow.example.com/urgent", priority=100)
    submitted(sites.store, urgent)
    sites.age(30)
    applied(sites.reopened().store, failed(started[0].job_id))
    assert sites.job(urgent.job_id).status == "scraping"


def test_many_callers_who_may_start_nothing_are_passed_over(database_url: str) -> None:
    limits = JobLimits({"free": Quota(max_per_hour=1)}, rates=DomainRates.parse(RATES))
    sites = Sites(JobStore(Database(database_url), limits), Database(database_url))
    sites.submit(AHEAD, caller="first")
    for at in range(60):
        sites.submit(1, "fast.example.com", caller=f"a{at:02}")
        sites.submit(2, caller=f"a{at:02}")
    jobs = [new_job(f"https://slow.example.com/z/{at}", caller_id="z", tier="pro") for at in range(3)]
    submitted(sites.store, *jobs)
    left: list[str] = []
    for _ in range(100):
        sites.age(30)
        left += sites.admit()
    assert {job.job_id for job in jobs} == set(left)


def test_a_site_without_work_is_free_although_a_caller_without_quota_waits_for_it(database_url: str) -> None:
    limits = JobLimits({"free": Quota(max_active=AHEAD)}, rates=DomainRates.parse(RATES))
    sites = Sites(JobStore(Database(database_url), limits), Database(database_url))
    sites.submit(AHEAD + 4, caller="full")
    for _ in range(3):
        sites.age(3600)
        sites.admit()
    sites.age(3600)
    (job,) = sites.submit(1, caller="other")
    assert job.status == "scraping"


def test_no_more_than_a_few_jobs_of_a_site_collect_during_a_pause(sites: Sites) -> None:
    sites.database.connection().execute(
        "INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'r', 'o')"
    )
    jobs = sites.submit(AHEAD + 20)
    for _ in range(8):
        sites.age(30)
        assert sites.admit() == []
    reasons = [job.waiting.reason for job in map(sites.refreshed, jobs) if job.waiting is not None]
    assert reasons.count("domain") >= 20 - AHEAD - 1


def test_a_result_lets_the_next_job_of_a_site_start(sites: Sites) -> None:
    jobs = sites.submit(AHEAD + 1)
    (waits,) = held(jobs)
    sites.age(11)
    started = next(job for job in jobs if job != waits)
    applied(sites.reopened().store, failed(started.job_id, "scraping"))
    assert sites.job(waits.job_id).status == "scraping"


def test_retried_jobs_take_turns(sites: Sites) -> None:
    jobs = sites.submit(AHEAD)
    for job in jobs:
        applied(sites.store, failed(job.job_id, "scraping"))
    sites.age(11)
    for job in jobs:
        retried(sites.store, job.job_id)
    started, waits = map(sites.refreshed, jobs)
    assert started.status == "scraping"
    assert (waits.status, waits.waiting and waits.waiting.reason) == ("pending", "domain")
    sites.age(11)
    assert sites.admit() == [waits.job_id]


def test_jobs_take_turns_when_they_wait_for_no_other_job_any_more(sites: Sites) -> None:
    (first,) = sites.submit(1, "fast.example.com")
    jobs = [new_job(f"https://slow.example.com/{at}", depends_on=(first.job_id,)) for at in range(AHEAD + 1)]
    submitted(sites.store, *jobs)
    applied(sites.store, scraped(first.job_id), chunked(first.job_id), embedded(first.job_id))
    assert sites.refreshed(first).status == "done"
    reasons = [job.waiting.reason for job in (sites.job(each.job_id) for each in jobs) if job.waiting]
    assert reasons == ["domain"]


def long_wait(job: Job, message_id: str = "wait") -> StageResult:
    """Return the report of a worker that a job's site keeps its message waiting for 300 s."""
    retrying = Retrying(
        tries=0,
        next_retry_at=SystemClock().now() + timedelta(seconds=300),
        retry_in_s=300.0,
        cause="domain_failing",
    )
    return stage_result(
        message_id=message_id,
        job_id=job.job_id,
        attempt=1,
        stage="scraping",
        status="retrying",
        retrying=retrying,
    )


def test_jobs_take_turns_when_what_they_depend_on_is_done_already(sites: Sites) -> None:
    (first,) = sites.submit(1, "fast.example.com")
    applied(sites.store, scraped(first.job_id), chunked(first.job_id), embedded(first.job_id))
    jobs = [new_job(f"https://slow.example.com/{at}", depends_on=(first.job_id,)) for at in range(AHEAD + 3)]
    submitted(sites.store, *jobs)
    assert len(held([sites.job(each.job_id) for each in jobs])) == 3


def test_a_retried_replay_takes_no_turn(sites: Sites) -> None:
    (first,) = sites.submit(1)
    replay = new_job("https://slow.example.com/replay", replay_of=first.job_id, forced=True)
    submitted(sites.store, replay)
    applied(sites.store, failed(replay.job_id))
    sites.submit(AHEAD + 1)
    retried(sites.store, replay.job_id)
    assert sites.job(replay.job_id).status == "scraping"


def test_a_report_of_a_long_wait_holds_back_the_next_jobs(sites: Sites) -> None:
    jobs = sites.submit(AHEAD + 1)
    (waits,) = held(jobs)
    started = next(job for job in jobs if job != waits)
    applied(sites.store, long_wait(started))
    told = sites.refreshed(waits).waiting
    assert told is not None
    assert told.reason == "domain_failing"
    assert told.next_eligible_at is not None
    assert (told.next_eligible_at - SystemClock().now()).total_seconds() == pytest.approx(300, abs=60)
    sites.age(200)
    assert sites.admit() == []
    sites.age(110)
    assert sites.admit() == [waits.job_id]


def test_a_report_of_a_long_wait_leaves_out_a_site_that_a_submit_has_locked(
    sites: Sites, database_url: str
) -> None:
    """A result locks jobs and then sites, a submit sites and then jobs: waiting would be a deadlock."""
    slow, other = (sites.submit(AHEAD + 2, host) for host in ("slow.example.com", "other.example.com"))
    late, later = (next(job for job in jobs if job.status != "pending") for jobs in (slow, other))
    submits = Database(database_url)

    def submit(tx: JobsTx) -> None:
        tx.lock_sites(["slow.example.com"])
        applied(sites.store, long_wait(late, "slow"), long_wait(later, "other"))

    JobStore(submits, JobLimits()).transaction(submit)
    submits.close()
    sites.age(11)
    (first,) = sites.admit()
    assert first in {job.job_id for job in held(slow)}
    # The next report of the same wait finds the site free.
    applied(sites.store, long_wait(late, "slow again"))
    sites.age(200)
    assert sites.admit() == []


def test_a_canceled_job_leaves_its_place_to_the_next(sites: Sites) -> None:
    jobs = sites.submit(AHEAD + 2)
    first, second = sorted(held(jobs), key=lambda job: job.created_at.isoformat() + job.job_id)
    canceled(sites.store, first.job_id)
    sites.age(11)
    assert sites.admit() == [second.job_id]


def test_held_back_jobs_leave_when_the_limit_is_taken_away(sites: Sites) -> None:
    jobs = held(sites.submit(AHEAD + 4))
    unlimited = Sites(JobStore(sites.database, JobLimits()), sites.database)
    sites.age(11)
    assert sorted(row.job_id for row in admit_all(unlimited.store)) == sorted(job.job_id for job in jobs)


def test_held_back_jobs_count_for_no_quota_of_jobs_in_flight(sites: Sites) -> None:
    limits = JobLimits({"free": Quota(max_active=AHEAD + 1)}, rates=DomainRates.parse(RATES))
    sites = Sites(JobStore(sites.database, limits), sites.database)
    assert len(held(sites.submit(AHEAD + 3))) == 3
    (waits,) = held(sites.submit(2, "fast.example.com"))
    assert waits.waiting is not None
    assert (waits.waiting.reason, waits.waiting.position) == ("quota_active", 1)
