"""One suite for every view that the sweeper may have of a store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest

from indexmill.contracts.messages import Retrying, StageResult
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.rows import NewJob, OutboxRow
from indexmill.orchestrator.store.sweep import Count, Retention, SweepStore
from indexmill.orchestrator.sweeper.rescue import confirm_missing
from indexmill.platform.postgres.database import Database
from tests.support.jobs import applied, failed, new_job, scraped, submitted
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs
from tests.twins.sweep_store import InMemorySweep

Age = Callable[[float], None]
MINUTE, HOUR = 60.0, 3600.0


@dataclass
class Harness:
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

    def stale(self, overtaken: bool = False, stage: str = "scraping") -> list[str]:
        before = self.view.now() - timedelta(seconds=60)
        return [each.job_id for each in self.view.find_stale(stage, 100, before, overtaken=overtaken)]

    def confirm_missing(self, counts: dict[str, Count]) -> dict[str, int]:
        return self.jobs.transaction(lambda tx: confirm_missing(tx, counts))

    def count_unaccounted(self) -> dict[str, int]:
        return dict(self.view.count_unaccounted(self.view.now() - timedelta(seconds=60)))


@pytest.fixture(params=["twin", "postgres"])
def harness(request: pytest.FixtureRequest) -> Iterator[Harness]:
    clock = FrozenClock()
    if request.param == "twin":
        jobs = InMemoryJobs(clock)
        yield Harness(jobs, InMemorySweep(jobs), clock.tick, clock)
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

    yield Harness(JobStore(database), SweepStore(database), age, clock)
    database.close()


def test_a_job_is_outside_when_its_message_was_sent_a_while_ago(harness: Harness) -> None:
    sent = new_job()
    submitted(harness.jobs, sent)
    harness.submit()
    harness.age(59)
    assert harness.count_unaccounted() == {}
    harness.age(2)
    assert harness.count_unaccounted() == {"scraping": 1}
    harness.jobs.mark_sent([sent.first.id])
    assert harness.count_unaccounted() == {"scraping": 1}
    harness.age(61)
    assert harness.count_unaccounted() == {"scraping": 2}


def test_a_job_that_moved_on_is_outside_in_its_new_stage_only(harness: Harness) -> None:
    job, ended = harness.submit(), harness.submit()
    harness.age(61)
    harness.apply(scraped(job.job_id), failed(ended.job_id))
    assert harness.count_unaccounted() == {}
    assert harness.stale() == []
    harness.jobs.mark_sent([row.id for row in claimed(harness)])
    harness.age(61)
    assert harness.count_unaccounted() == {"chunking": 1}
    assert harness.stale(stage="chunking") == [job.job_id]


def claimed(harness: Harness) -> list[OutboxRow]:
    harness.age(31)
    return harness.jobs.claim(10)


def test_a_parked_message_is_nowhere(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    for _ in range(10):
        harness.jobs.mark_failed([job.first.id], "bad")
    assert harness.view.parked() == 1
    assert harness.count_unaccounted() == {"scraping": 1}
    assert harness.stale(overtaken=True) == [job.job_id]
    harness.apply(failed(job.job_id))
    assert harness.view.parked() == 0, "no job waits for it any more"


def test_a_parked_message_of_an_ended_job_is_not_counted(harness: Harness) -> None:
    job = new_job()
    submitted(harness.jobs, job)
    for _ in range(10):
        harness.jobs.mark_failed([job.first.id], "bad")
    harness.apply(failed(job.job_id))
    assert harness.view.parked() == 0


def test_two_counts_that_are_a_minute_apart_must_agree(harness: Harness) -> None:
    def count(scraping: int, embedding: int = 0) -> tuple[int, int] | None:
        at = harness.view.now()
        found = harness.confirm_missing({"scraping": Count(scraping, at), "embedding": Count(embedding, at)})
        return (found["scraping"], found["embedding"]) if found else None

    assert count(5) == (0, 0)
    assert count(5) is None
    harness.age(60)
    assert count(3, 9) == (3, 0)
    harness.age(60)
    assert count(7, 9) == (3, 9)
    assert count(7, 9) is None
    harness.age(60)
    assert count(0) == (0, 0)
    harness.age(60)
    assert count(4) == (0, 0)
    harness.age(6 * 60)
    assert count(4) == (0, 0)


def test_a_count_from_before_the_last_one_is_ignored(harness: Harness) -> None:
    harness.confirm_missing({"scraping": Count(5, harness.view.now())})
    old = harness.view.now() - timedelta(seconds=40)
    assert harness.confirm_missing({"scraping": Count(5, old)}) == {}
    harness.age(60)
    assert harness.confirm_missing({"scraping": Count(5, harness.view.now())}) == {"scraping": 5}


def test_the_longest_without_an_event_comes_first(harness: Harness) -> None:
    jobs = []
    for _ in range(3):
        jobs.append(harness.submit())
        harness.age(1)
    harness.age(60)
    assert harness.stale() == [job.job_id for job in jobs]
    waits = {"tries": 1, "next_retry_at": harness.view.now() + timedelta(hours=1), "cause": "http_503"}
    note = scraped(jobs[0].job_id).model_copy(
        update={"status": "retrying", "document": None, "retrying": Retrying.model_validate(waits)}
    )
    harness.apply(note)
    harness.age(30)
    assert harness.stale() == [jobs[1].job_id, jobs[2].job_id, jobs[0].job_id]


def test_in_front_of_a_long_queue_a_job_must_have_been_passed(harness: Harness) -> None:
    lost = harness.submit()
    stranger = harness.submit("somebody-else")
    harness.age(61)
    later = harness.submit()
    harness.age(61)
    assert harness.stale(overtaken=True) == []
    harness.apply(scraped(later.job_id))
    assert harness.stale(overtaken=True) == [lost.job_id]
    assert harness.stale(overtaken=False) == [lost.job_id, stranger.job_id]
    harness.age(30 * MINUTE)
    assert harness.stale(overtaken=True) == [lost.job_id, stranger.job_id]


def test_a_job_is_overtaken_when_a_message_sent_a_minute_later_was_processed(harness: Harness) -> None:
    def overtaken() -> dict[str, int]:
        return dict(harness.view.count_overtaken(harness.view.now() - timedelta(seconds=60)))

    for caller_id in ("0123456789abcdef", "somebody-else"):
        harness.submit(caller_id)
    harness.age(61)
    later = harness.submit()
    harness.age(20)
    harness.apply(scraped(later.job_id))
    assert overtaken() == {}
    harness.age(10)
    assert overtaken() == {"scraping": 1}
    harness.age(2 * MINUTE)
    assert overtaken() == {}


def test_a_job_with_a_scheduled_retry_is_not_overtaken(harness: Harness) -> None:
    job = harness.submit()
    waits = {"tries": 1, "next_retry_at": harness.view.now() + timedelta(hours=1), "cause": "http_503"}
    note = {"status": "retrying", "document": None, "retrying": Retrying.model_validate(waits)}
    harness.apply(scraped(job.job_id).model_copy(update=note))
    harness.age(70)
    later = harness.submit()
    harness.age(60)
    harness.apply(scraped(later.job_id))
    assert harness.view.count_overtaken(harness.view.now()) == {}


def test_a_message_is_sent_again_once_with_its_own_id(harness: Harness) -> None:
    job = harness.submit()
    harness.age(61)
    found = harness.view.find_stale("scraping", 10, harness.view.now(), overtaken=False)
    assert (found[0].message_id, found[0].attempt, found[0].rescues) == (job.first.id, 1, 0)
    assert found[0].stuck_for >= timedelta(seconds=61)
    assert harness.view.send_again(found) == 1
    assert harness.view.send_again(found) == 0
    assert [row.id for row in harness.jobs.claim(10)] == [job.first.id]
    harness.jobs.mark_sent([job.first.id])
    assert harness.view.send_again(found) == 0
    harness.age(61)
    assert harness.view.find_stale("scraping", 10, harness.view.now(), overtaken=False)[0].rescues == 1


def test_a_job_that_moved_since_it_was_looked_at_is_left_alone(harness: Harness) -> None:
    job = harness.submit()
    harness.age(61)
    found = harness.view.find_stale("scraping", 10, harness.view.now(), overtaken=False)
    harness.clock.tick(1)
    harness.apply(scraped(job.job_id))
    assert harness.view.send_again(found) == 0


def stuck(harness: Harness, *, empty: bool = True, others: bool = False) -> list[str]:
    stages = ["scraping", "chunking", "embedding"]
    found = harness.view.stuck(stages if empty else [], [] if empty else stages, 100)
    return [each.job_id for each in found]


def test_half_an_hour_of_silence_is_stuck_where_nothing_is_queued(harness: Harness) -> None:
    job = harness.submit()
    harness.age(29 * MINUTE)
    assert stuck(harness) == []
    harness.age(2 * MINUTE)
    assert stuck(harness) == [job.job_id]
    assert stuck(harness, empty=False) == []
    assert harness.view.stuck([], [], 100) == []
    harness.apply(failed(job.job_id))
    assert stuck(harness) == []


def test_behind_a_long_queue_only_who_was_passed_is_stuck(harness: Harness) -> None:
    lost, waiting = harness.submit(), harness.submit("somebody-else")
    harness.age(20 * MINUTE)
    later = harness.submit()
    harness.age(11 * MINUTE)
    assert stuck(harness, empty=False) == []
    harness.apply(scraped(later.job_id))
    assert stuck(harness, empty=False) == [lost.job_id]
    assert stuck(harness) == [lost.job_id, waiting.job_id]


def test_a_job_whose_message_is_still_to_be_sent_is_not_stuck(harness: Harness) -> None:
    submitted(harness.jobs, new_job())
    harness.age(HOUR)
    assert stuck(harness) == []


def test_old_messages_of_ended_jobs_are_deleted_in_batches(harness: Harness) -> None:
    ended = [harness.submit() for _ in range(3)]
    working = harness.submit()
    harness.apply(*(failed(job.job_id) for job in ended))
    harness.age(6 * 24 * HOUR)
    keep = Retention()
    assert harness.view.purge(keep, 10)["outbox"] == 0
    harness.age(25 * HOUR)
    assert [harness.view.purge(keep, 2)["outbox"] for _ in range(3)] == [2, 1, 0]
    assert stuck(harness) == [working.job_id]


def test_incidents_open_and_close_once(harness: Harness) -> None:
    assert harness.view.incidents("paused", {"scraping": {"reason": "a"}}) == (["scraping"], [])
    assert harness.view.incidents("paused", {"scraping": {"reason": "a"}, "embedding": {}}) == (
        *(["embedding"], []),
    )
    assert harness.view.incidents("breaker_open", {}) == ([], [])
    assert harness.view.incidents("paused", {"embedding": {}}) == ([], ["scraping"])
    assert harness.view.incidents("paused", {"scraping": {"reason": "b"}}) == (["scraping"], ["embedding"])
    assert harness.view.pauses() == {}
