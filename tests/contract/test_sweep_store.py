"""One suite for every view that the sweeper may have of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from indexmill.contracts.messages import Retrying, StageResult
from indexmill.orchestrator.accounting import confirm
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres.sweep import PostgresSweep
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports import NewJob
from indexmill.orchestrator.ports_sweep import Count, Retention, Silent, SweepStore
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from indexmill.testing.jobs import InMemoryJobs
from indexmill.testing.sweep_store import InMemorySweep
from tests.support.jobs import applied, failed, new_job, scraped, submitted

Age = Callable[[float], None]
MINUTE, HOUR = 60.0, 3600.0


@dataclass
class Bench:
    """A store, the sweeper's view of it, and a way to let time pass."""

    jobs: JobStore
    view: SweepStore
    age: Age
    clock: FrozenClock

    def submit(self, caller_id: str = "0123456789abcdef") -> NewJob:
        """Submit a job whose message is sent."""
        job = new_job(f"https://example.com/{id(object())}/{self.clock.monotonic()}", caller_id)
        self.clock.tick(0.001)
        submitted(self.jobs, job)
        self.jobs.mark_sent([job.first.id])
        return job

    def apply(self, *results: StageResult) -> None:
        applied(self.jobs, *results)

    def silent(self, passed: bool = False, stage: str = "scraping") -> list[str]:
        before = self.view.now() - timedelta(seconds=60)
        return [each.job_id for each in self.view.silent(stage, 100, before, passed=passed)]

    def confirm(self, counts: dict[str, Count]) -> dict[str, int]:
        return self.jobs.transaction(lambda tx: confirm(tx, counts))

    def outside(self) -> dict[str, int]:
        return dict(self.view.outside(self.view.now() - timedelta(seconds=60)))


@pytest.fixture(params=["twin", "postgres"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    clock = FrozenClock()
    if request.param == "twin":
        jobs = InMemoryJobs(clock)
        yield Bench(jobs, InMemorySweep(jobs), clock.tick, clock)
        return
    database = Database(request.getfixturevalue("database_url"))
    connection = database.connection()
    shifted = {
        "jobs": ("created_at", "updated_at", "ended_at", "admitted_at", "next_retry_at"),
        "outbox": ("created_at", "sent_at", "claimed_until", "parked_at"),
        "sweep_state": ("counted_at",),
        "inbox": ("received_at",),
        "idempotency_keys": ("created_at",),
    }

    def age(seconds: float) -> None:
        for table, columns in shifted.items():
            earlier = ", ".join(f"{name} = {name} - interval '{seconds} seconds'" for name in columns)
            connection.execute(f"UPDATE {table} SET {earlier}".encode())

    yield Bench(PostgresJobs(database), PostgresSweep(database), age, clock)
    database.close()


def test_a_job_is_outside_when_its_message_was_sent_a_while_ago(bench: Bench) -> None:
    held = new_job()
    submitted(bench.jobs, held)
    bench.submit()
    bench.age(59)
    assert bench.outside() == {}
    bench.age(2)
    assert bench.outside() == {"scraping": 1}
    bench.jobs.mark_sent([held.first.id])
    assert bench.outside() == {"scraping": 1}
    bench.age(61)
    assert bench.outside() == {"scraping": 2}


def test_a_job_that_moved_on_is_outside_in_its_new_stage_only(bench: Bench) -> None:
    job, ended = bench.submit(), bench.submit()
    bench.age(61)
    bench.apply(scraped(job.job_id), failed(ended.job_id))
    assert bench.outside() == {}
    assert bench.silent() == []
    bench.jobs.mark_sent([row.id for row in claimed(bench)])
    bench.age(61)
    assert bench.outside() == {"chunking": 1}
    assert bench.silent(stage="chunking") == [job.job_id]


def claimed(bench: Bench) -> list[Silent]:
    bench.age(31)
    return bench.jobs.claim(10)  # type: ignore[return-value]


def test_a_parked_message_is_nowhere(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    for _ in range(10):
        bench.jobs.mark_failed([job.first.id], "bad")
    assert bench.view.parked() == 1
    assert bench.outside() == {"scraping": 1}
    assert bench.silent(passed=True) == [job.job_id]
    bench.apply(failed(job.job_id))
    assert bench.view.parked() == 0, "nobody waits for it any more"


def test_a_message_that_nobody_waits_for_any_more_is_not_told_as_parked(bench: Bench) -> None:
    job = new_job()
    submitted(bench.jobs, job)
    for _ in range(10):
        bench.jobs.mark_failed([job.first.id], "bad")
    bench.apply(failed(job.job_id))
    assert bench.view.parked() == 0


def test_two_counts_that_are_a_minute_apart_must_agree(bench: Bench) -> None:
    def count(scraping: int, embedding: int = 0) -> tuple[int, int] | None:
        at = bench.view.now()
        found = bench.confirm({"scraping": Count(scraping, at), "embedding": Count(embedding, at)})
        return (found["scraping"], found["embedding"]) if found else None

    assert count(5) == (0, 0)
    assert count(5) is None
    bench.age(60)
    assert count(3, 9) == (3, 0)
    bench.age(60)
    assert count(7, 9) == (3, 9)
    assert count(7, 9) is None
    bench.age(60)
    assert count(0) == (0, 0)
    bench.age(60)
    assert count(4) == (0, 0)
    bench.age(6 * 60)
    assert count(4) == (0, 0)


def test_a_count_from_before_the_last_one_is_ignored(bench: Bench) -> None:
    bench.confirm({"scraping": Count(5, bench.view.now())})
    old = bench.view.now() - timedelta(seconds=40)
    assert bench.confirm({"scraping": Count(5, old)}) == {}
    bench.age(60)
    assert bench.confirm({"scraping": Count(5, bench.view.now())}) == {"scraping": 5}


def test_the_longest_without_an_event_comes_first(bench: Bench) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(bench.submit())
        bench.age(1)
    bench.age(60)
    assert bench.silent() == [job.job_id for job in jobs]
    waits = {"tries": 1, "next_retry_at": bench.view.now() + timedelta(hours=1), "cause": "http_503"}
    note = scraped(jobs[0].job_id).model_copy(
        update={"status": "retrying", "document": None, "retrying": Retrying.model_validate(waits)}
    )
    bench.apply(note)
    bench.age(30)
    assert bench.silent() == [jobs[1].job_id, jobs[2].job_id, jobs[0].job_id]


def test_in_front_of_a_long_queue_a_job_must_have_been_passed(bench: Bench) -> None:
    lost = bench.submit()
    stranger = bench.submit("somebody-else")
    bench.age(61)
    later = bench.submit()
    bench.age(61)
    assert bench.silent(passed=True) == []
    bench.apply(scraped(later.job_id))
    assert bench.silent(passed=True) == [lost.job_id]
    assert bench.silent(passed=False) == [lost.job_id, stranger.job_id]
    bench.age(30 * MINUTE)
    assert bench.silent(passed=True) == [lost.job_id, stranger.job_id]


def test_a_job_was_passed_when_what_was_sent_a_minute_later_is_through(bench: Bench) -> None:
    def passed() -> dict[str, int]:
        return dict(bench.view.passed(bench.view.now() - timedelta(seconds=60)))

    for caller_id in ("0123456789abcdef", "somebody-else"):
        bench.submit(caller_id)
    bench.age(61)
    later = bench.submit()
    bench.age(20)
    bench.apply(scraped(later.job_id))
    assert passed() == {}
    bench.age(10)
    assert passed() == {"scraping": 1}
    bench.age(2 * MINUTE)
    assert passed() == {}


def test_a_job_that_said_when_it_goes_on_was_not_passed(bench: Bench) -> None:
    job = bench.submit()
    waits = {"tries": 1, "next_retry_at": bench.view.now() + timedelta(hours=1), "cause": "http_503"}
    note = {"status": "retrying", "document": None, "retrying": Retrying.model_validate(waits)}
    bench.apply(scraped(job.job_id).model_copy(update=note))
    bench.age(70)
    later = bench.submit()
    bench.age(60)
    bench.apply(scraped(later.job_id))
    assert bench.view.passed(bench.view.now()) == {}


def test_a_message_is_sent_again_once_with_its_own_id(bench: Bench) -> None:
    job = bench.submit()
    bench.age(61)
    found = bench.view.silent("scraping", 10, bench.view.now(), passed=False)
    assert (found[0].message_id, found[0].attempt, found[0].rescues) == (job.first.id, 1, 0)
    assert found[0].stuck_for >= timedelta(seconds=61)
    assert bench.view.send_again(found) == 1
    assert bench.view.send_again(found) == 0
    assert [row.id for row in bench.jobs.claim(10)] == [job.first.id]
    bench.jobs.mark_sent([job.first.id])
    assert bench.view.send_again(found) == 0
    bench.age(61)
    assert bench.view.silent("scraping", 10, bench.view.now(), passed=False)[0].rescues == 1


def test_a_job_that_moved_since_it_was_looked_at_is_left_alone(bench: Bench) -> None:
    job = bench.submit()
    bench.age(61)
    found = bench.view.silent("scraping", 10, bench.view.now(), passed=False)
    bench.clock.tick(1)
    bench.apply(scraped(job.job_id))
    assert bench.view.send_again(found) == 0


def stuck(bench: Bench, *, empty: bool = True, others: bool = False) -> list[str]:
    stages = ["scraping", "chunking", "embedding"]
    found = bench.view.stuck(stages if empty else [], [] if empty else stages, 100)
    return [each.job_id for each in found]


def test_half_an_hour_of_silence_is_stuck_where_nothing_is_queued(bench: Bench) -> None:
    job = bench.submit()
    bench.age(29 * MINUTE)
    assert stuck(bench) == []
    bench.age(2 * MINUTE)
    assert stuck(bench) == [job.job_id]
    assert stuck(bench, empty=False) == []
    assert bench.view.stuck([], [], 100) == []
    bench.apply(failed(job.job_id))
    assert stuck(bench) == []


def test_behind_a_long_queue_only_who_was_passed_is_stuck(bench: Bench) -> None:
    lost, waiting = bench.submit(), bench.submit("somebody-else")
    bench.age(20 * MINUTE)
    later = bench.submit()
    bench.age(11 * MINUTE)
    assert stuck(bench, empty=False) == []
    bench.apply(scraped(later.job_id))
    assert stuck(bench, empty=False) == [lost.job_id]
    assert stuck(bench) == [lost.job_id, waiting.job_id]


def test_a_job_whose_message_is_still_to_be_sent_is_not_stuck(bench: Bench) -> None:
    submitted(bench.jobs, new_job())
    bench.age(HOUR)
    assert stuck(bench) == []


def test_old_messages_of_ended_jobs_are_deleted_in_batches(bench: Bench) -> None:
    ended = [bench.submit() for _ in range(3)]
    working = bench.submit()
    bench.apply(*(failed(job.job_id) for job in ended))
    bench.age(6 * 24 * HOUR)
    keep = Retention()
    assert bench.view.purge(keep, 10)["outbox"] == 0
    bench.age(25 * HOUR)
    assert [bench.view.purge(keep, 2)["outbox"] for _ in range(3)] == [2, 1, 0]
    assert stuck(bench) == [working.job_id]


def test_incidents_open_and_close_once(bench: Bench) -> None:
    assert bench.view.incidents("paused", {"scraping": {"reason": "a"}}) == (["scraping"], [])
    assert bench.view.incidents("paused", {"scraping": {"reason": "a"}, "embedding": {}}) == (
        *(["embedding"], []),
    )
    assert bench.view.incidents("breaker_open", {}) == ([], [])
    assert bench.view.incidents("paused", {"embedding": {}}) == ([], ["scraping"])
    assert bench.view.incidents("paused", {"scraping": {"reason": "b"}}) == (["scraping"], ["embedding"])
    assert bench.view.pauses() == {}
