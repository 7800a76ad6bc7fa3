"""Sweeps that run twice, late, not at all, or end halfway: unsent messages are sent once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from local.faults.invariants.violation import Accepted
from local.faults.rules import Rule
from tests.faults.arena import Arena
from tests.support.stack import between_ticks, eventually

pytestmark = pytest.mark.e2e

SCHEDULE = "OrchestratorSweeperEveryMinute"
SEND = "OrchestratorSweeper/sqs.SendMessageBatch@ScrapeQueue"


def unsent(arena: Arena, count: int, *rules: Rule) -> list[Accepted]:
    """Submit jobs whose messages no queue accepts, and let their leases expire."""
    failing = Rule("OrchestratorApi/sqs.SendMessageBatch@ScrapeQueue", "error", times=count)
    arena.control.arm([failing, *rules], trace=True)
    jobs = [arena.submit(arena.page(arena.token("swept"))) for _ in range(count)]
    assert left(arena, jobs) == count
    arena.cloud.pass_time()
    return jobs


def left(arena: Arena, jobs: list[Accepted]) -> int:
    """Return how many of the jobs' first messages wait; those of later stages come and go meanwhile."""
    with arena.cloud.database() as database:
        statement = """SELECT count(*) FROM outbox
            WHERE sent_at IS NULL AND stage = 'scraping' AND job_id = ANY(%s)"""
        (count,) = database.execute(statement, ([job.job_id for job in jobs],)).fetchone() or (-1,)
    return int(count)


def sends(arena: Arena) -> int:
    return sum(each["place"] == SEND for each in arena.control.traced())


def both_at_once(arena: Arena) -> None:
    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(arena.cloud.sweep)


def fired_twice(arena: Arena) -> None:
    arena.stack.disturb(SCHEDULE, mode="twice", times=1, fire=True)


def fired_late(arena: Arena) -> None:
    arena.stack.disturb(SCHEDULE, mode="late", times=1, delay=1, fire=True)


@pytest.mark.parametrize(
    "come",
    [
        pytest.param(both_at_once, marks=pytest.mark.fault("F60")),
        pytest.param(fired_twice, marks=pytest.mark.fault("F60", "F63")),
        pytest.param(fired_late, marks=pytest.mark.fault("F63")),
    ],
)
def test_however_sweeps_come_a_message_is_sent_once(kept: Arena, come: Callable[[Arena], None]) -> None:
    before = sends(kept)
    jobs = unsent(kept, 1)
    come(kept)
    eventually(lambda: kept.ended(jobs), "the job ends")
    eventually(lambda: not kept.stack.status()["functions"]["OrchestratorSweeper"]["busy"], "all sweeps end")
    assert sends(kept) == before + 1


@pytest.mark.fault("F63")
def test_what_a_missed_sweep_left_is_sent_by_the_next(kept: Arena) -> None:
    between_ticks(kept.stack, SCHEDULE)
    jobs = unsent(kept, 1)
    missed = kept.stack.status()["schedules"][SCHEDULE]["missed"]
    kept.stack.disturb(SCHEDULE, mode="missed", times=1, fire=True)
    eventually(lambda: kept.stack.status()["schedules"][SCHEDULE]["missed"] > missed, "it is missed")
    assert left(kept, jobs) == 1
    kept.stack.disturb(SCHEDULE, fire=True)
    eventually(lambda: kept.ended(jobs), "the job ends")


@pytest.mark.fault("F62")
@pytest.mark.parametrize("when", ["kill_before", "kill_after"])
def test_a_sweep_that_was_killed_halfway_is_finished_by_the_next(kept: Arena, when: str) -> None:
    before = sends(kept)
    jobs = unsent(kept, 3, Rule(SEND, when))  # type: ignore[arg-type]
    kept.cloud.sweep()
    assert left(kept, jobs) == 3
    kept.cloud.pass_time()
    kept.cloud.sweep()
    eventually(lambda: kept.ended(jobs), "the jobs end")
    eventually(lambda: left(kept, jobs) == 0, "all are marked as sent")
    assert sends(kept) == before + 2
