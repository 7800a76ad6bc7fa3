"""The sweeper's nets on twins: what is lost is found, and nothing else is sent again."""

from __future__ import annotations

import random

import pytest

from indexmill.contracts.messages import EmbedTask, ScrapeTask, read
from indexmill.orchestrator.store.sweep import StaleJob
from tests.support.jobs import embedded, failed, scraped, stored_job
from tests.support.metrics import emitted
from tests.support.sweeper import SweeperHarness
from tests.twins.sweep_store import InMemorySweep


def sent_twice(p: SweeperHarness) -> int:
    """Return how many messages were sent again."""
    return sum(row["rescues"] for row in p.jobs.outbox.values())


def drain(p: SweeperHarness, most: int = 100_000) -> None:
    """Let the workers do `most` messages of each stage, and the callbacks be applied."""
    for _ in range(2):
        taken, p.scrape.bodies[:] = p.scrape.bodies[:most], p.scrape.bodies[most:]
        p.deliver(*(scraped(read(ScrapeTask, body).job_id or "") for body in taken))
        p.embed.bodies, tasks = [], list(p.embed.bodies)
        p.deliver(*(embedded(read(EmbedTask, body).job_id or "") for body in tasks))


def test_one_lost_message_is_sent_again_within_five_minutes() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.scrape.bodies.clear()
    ticks = p.tick(4)
    assert [tick["lost"] for tick in ticks] == [0, 1, 0, 0]
    assert [read(ScrapeTask, body).job_id for body in p.scrape.bodies] == [job_id]
    drain(p)
    assert p.status(job_id) == "done"


@pytest.mark.parametrize(("chosen", "count"), [("first", 300), ("last", 300), ("anywhere", 1_000)])
def test_fifty_messages_lost_out_of_hundreds_are_found_and_no_other_is_sent_again(
    chosen: str, count: int
) -> None:
    p = SweeperHarness()
    jobs = p.submit_many(count)
    at = {
        "first": range(50),
        "last": range(count - 50, count),
        "anywhere": random.Random(7).sample(range(count), 50),
    }[chosen]
    lost = set(at)
    p.scrape.bodies[:] = [body for place, body in enumerate(p.scrape.bodies) if place not in lost]
    ticks = p.tick(4)
    assert "messages_missing" in p.view.open_incidents
    assert p.view.open_incidents["messages_missing"] == {"scraping": {"missing": 50}}
    for _ in range(6):
        drain(p, count // 5)
        ticks += p.tick()
    for _ in range(4):
        drain(p)
        ticks += p.tick()
    assert {p.status(job_id) for job_id in jobs} == {"done"}
    assert sent_twice(p) == 50 == sum(tick["lost"] for tick in ticks)
    assert p.view.open_incidents["messages_missing"] == {}


def test_a_whole_queue_that_was_purged_is_filled_again() -> None:
    p = SweeperHarness()
    jobs = p.submit_many(300)
    p.scrape.bodies.clear()
    p.tick(4)
    assert len(p.scrape.bodies) == 300
    drain(p)
    assert {p.status(job_id) for job_id in jobs} == {"done"}


@pytest.mark.fault("F61")
def test_a_long_queue_without_a_consumer_is_no_loss() -> None:
    p = SweeperHarness()
    for _ in range(20):
        p.submit()
    assert {tick["lost"] + tick["rescued"] for tick in p.tick(180)} == {0}
    assert sent_twice(p) == 0


@pytest.mark.fault("F61")
def test_a_result_that_waits_to_be_applied_is_no_loss() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.reports.bodies, p.scrape.bodies = ["its report"], []
    assert {tick["lost"] + tick["rescued"] for tick in p.tick(60)} == {0}
    p.reports.bodies = []
    p.deliver(scraped(job_id))
    assert p.status(job_id) == "embedding"


def test_nothing_is_concluded_while_the_queues_cannot_be_counted() -> None:
    p = SweeperHarness()
    p.submit()
    p.scrape.bodies.clear()
    p.reports.unavailable = True
    assert {tick["lost"] + tick["rescued"] for tick in p.tick(60)} == {0}
    p.reports.unavailable = False
    assert sum(tick["lost"] + tick["rescued"] for tick in p.tick(2)) == 1


def test_a_lost_result_is_found_like_a_lost_message() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.deliver(scraped(job_id))
    p.scrape.bodies.clear()
    p.embed.bodies.clear()
    p.tick(4)
    assert len(p.embed.bodies) == 1
    assert p.status(job_id) == "embedding"


def test_a_chunk_message_that_vanished_is_sent_again() -> None:
    p = SweeperHarness()
    p.chunking_paused = True
    job_id = p.submit()
    p.deliver(scraped(job_id))
    p.scrape.bodies.clear()
    p.chunk.bodies.clear()
    p.tick(4)
    p.chunk_all()
    assert p.status(job_id) == "embedding"


@pytest.mark.fault("F60")
def test_two_sweepers_at_once_send_one_message() -> None:
    p = SweeperHarness()
    p.submit()
    p.scrape.bodies.clear()
    second = p.sweeper(p.view)
    for _ in range(4):
        p.tick()
        second()
    assert (len(p.scrape.bodies), sent_twice(p)) == (1, 1)


class Killed(BaseException):
    """The process ends here."""


class Interrupted(InMemorySweep):
    """Dies before it has sent anything again, the first time."""

    died = False

    def send_again(self, jobs: list[StaleJob]) -> int:  # type: ignore[override]
        if not self.died:
            self.died = True
            raise Killed
        return super().send_again(jobs)


@pytest.mark.fault("F62")
def test_a_sweeper_that_is_killed_halfway_leaves_the_rest_to_the_next() -> None:
    p = SweeperHarness()
    p.submit()
    p.scrape.bodies.clear()
    p.sweep = p.sweeper(Interrupted(p.jobs))
    p.tick()
    with pytest.raises(Killed):
        p.tick()
    p.tick(2)
    assert (len(p.scrape.bodies), sent_twice(p)) == (1, 1)


def test_a_message_that_never_gets_through_fails_its_job_in_the_end() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    for _ in range(12):
        p.scrape.bodies.clear()
        p.tick()
    job = stored_job(p.store, "0123456789abcdef", job_id)
    assert job is not None
    assert job.error is not None
    assert (job.failed_stage, job.error.code, job.error.attempts) == ("scraping", "stuck_timeout", 4)
    assert sent_twice(p) == 3


def test_half_an_hour_of_silence_is_the_second_net() -> None:
    """A message without a job hides that another one is missing; the queue is empty again afterwards."""
    p = SweeperHarness()
    job_id = p.submit()
    p.scrape.bodies[:] = ["standalone work"]
    assert {tick["lost"] for tick in p.tick(31)} == {0}
    p.scrape.bodies.clear()
    p.jobs.counts.clear()
    (tick,) = p.tick()
    assert tick["rescued"] == 1
    assert [read(ScrapeTask, body).job_id for body in p.scrape.bodies] == [job_id]


def test_a_job_without_a_kept_message_fails_after_half_an_hour() -> None:
    p = SweeperHarness()
    job_id = p.submit()
    p.scrape.bodies.clear()
    p.jobs.outbox.clear()
    p.tick(29)
    assert p.status(job_id) == "scraping"
    p.tick(2)
    assert p.status(job_id) == "failed"


def test_a_paused_stage_redispatches_nothing() -> None:
    p = SweeperHarness()
    p.submit()
    p.jobs.pauses["scraping"] = "maintenance"
    assert {tick["rescued"] for tick in p.tick(60)} == {0}


def test_waiting_jobs_are_admitted_and_old_rows_deleted() -> None:
    p = SweeperHarness()
    ended = p.submit()
    p.deliver(failed(ended))
    p.scrape.bodies.clear()
    p.clock.tick(8 * 86_400)
    (tick,) = p.tick()
    assert (tick["purged"], tick["admitted"]) == (1, 0)
    assert p.jobs.outbox == {}


def test_the_builder_is_started_when_an_index_is_due() -> None:
    p = SweeperHarness()
    assert (p.tick()[0]["indexes"], p.index_builder.started) == (0, 0)
    p.view.index_builds = 2
    assert (p.tick()[0]["indexes"], p.index_builder.started) == (2, 1)
    p.index_builder.broken = True
    assert p.tick()[0]["indexes"] == 0


def test_each_step_that_fails_is_counted_for_the_alarm(capsys: pytest.CaptureFixture[str]) -> None:
    p = SweeperHarness()
    p.tick()
    assert emitted(capsys, "sweep_steps_failed_total") == []
    p.reports.unavailable = True
    p.view.index_builds = 1
    p.index_builder.broken = True
    p.tick()
    assert emitted(capsys, "sweep_steps_failed_total") == [(1.0, {"function": "none"})] * 2
