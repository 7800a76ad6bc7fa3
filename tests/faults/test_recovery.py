"""Recovery times after a fault. Each limit is the design's, not a measurement of a machine.

Nothing is sped up here: the sweeper runs on its own schedule.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from indexmill.platform.time import SystemClock
from local.faults.invariants.violation import Accepted
from local.faults.rules import Rule
from local.faults.toxics import Toxic
from tests.faults.arena import VISIBILITY_S, Arena
from tests.support.stack import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(300)]

SWEEPER: Final = "OrchestratorSweeperEveryMinute"
AFTER_VISIBILITY_S: Final = 10.0
"""To be received again, by a process that is started for it."""
SCHEDULE_S: Final = 60.0
LEASED_S: Final = 10.0
"""How long a message is left alone after a failed send."""
AFTER_TICK_S: Final = 10.0
"""To start the sweeper and the worker."""
DATABASE_BACK_S: Final = 15.0
OUTAGE_S: Final = 120.0
"""When to stop waiting for what has no limit of its own."""

LEFT: Final = """
SELECT extract(epoch FROM min(at))::float8 FROM job_history WHERE job_id = %s AND from_status = %s
"""
KILLED_IN: Final = {
    "ScraperWorker/sqs.SendMessageBatch@CallbacksQueue": "scraping",
    "EmbeddingWorker/http.post@embeddings": "embedding",
    "OrchestratorResults/postgres.commit": "scraping",
}
_CHUNKING: Final = "OrchestratorResults/sqs.SendMessageBatch@ChunkQueue"


def now() -> float:
    return SystemClock().now().timestamp()


def left(arena: Arena, job: Accepted, stage: str, within_s: float) -> float:
    """Return when the job left the stage."""

    def look() -> float | None:
        with arena.cloud.database() as database:
            row = database.execute(LEFT, (job.job_id, stage)).fetchone()
        return row[0] if row else None

    return eventually(look, f"the job leaves {stage}", within_s)


@pytest.mark.parametrize(
    ("place", "stage"), KILLED_IN.items(), ids=[each.partition("/")[0] for each in KILLED_IN]
)
def test_the_job_of_a_killed_process_continues_when_its_message_is_redelivered(
    kept: Arena, place: str, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    token = kept.token("killed")
    kept.control.arm([Rule(place, "kill_before", mark=token, name=token)])
    job = kept.submit(kept.page(token))
    went_on = left(kept, job, stage, OUTAGE_S)
    (killed,) = (each["at"] for each in kept.control.fired() if each["rule"] == token)
    took = went_on - killed
    with capsys.disabled():
        print(f"\n  {place} killed: its job went on after {took:.1f} s, with {VISIBILITY_S} s of visibility")
    assert 0 < took <= VISIBILITY_S + AFTER_VISIBILITY_S


@pytest.fixture
def relay_down(kept: Arena) -> Iterator[Arena]:
    """Yield the stack with a queue that nothing can be sent to."""
    kept.control.arm([Rule("sqs.SendMessageBatch@ScrapeQueue", "error", times=10**6, name="relay-down")])
    yield kept
    kept.control.arm()


def unsent(arena: Arena, job: Accepted) -> float:
    """Return for how many seconds the job's message is still left alone; it was not sent."""
    statement = (
        "SELECT sent_at, extract(epoch FROM claimed_until - now())::float8 FROM outbox WHERE job_id = %s"
    )
    with arena.cloud.database() as database:
        row = database.execute(statement, (job.job_id,)).fetchone()
    assert row is not None
    assert row[0] is None
    return float(row[1])


def test_what_could_not_be_sent_is_sent_by_the_next_sweep_that_may(
    relay_down: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = relay_down
    token = arena.token("relay")
    job = arena.submit(arena.page(token))
    asked = now()
    leased = unsent(arena, job)
    arena.control.arm()
    # By the clock: the schedule's own tick may come just after the lease expired.
    eventually(lambda: now() > asked + leased, "nobody holds it", LEASED_S + 5)
    arena.stack.disturb(SWEEPER, fire=True)
    took = left(arena, job, "scraping", OUTAGE_S) - asked - leased
    with capsys.disabled():
        print(
            f"\n  relay down: held for {leased:.1f} s, scraped {took:.1f} s after that;"
            f" {LEASED_S + SCHEDULE_S:g} s and that at the worst moment"
        )
    assert 0 < leased <= LEASED_S
    assert 0 < took <= AFTER_TICK_S


@pytest.mark.long
def test_the_schedules_own_minute_sends_what_could_not_be_sent(
    relay_down: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = relay_down
    before = arena.stack.status()["schedules"][SWEEPER]["fired"]
    jobs = [arena.submit(arena.page(arena.token("relay"))) for _ in range(5)]
    eventually(
        lambda: arena.stack.status()["schedules"][SWEEPER]["fired"] > before,
        "a sweep in vain",
        2 * SCHEDULE_S,
    )
    eventually(lambda: not arena.stack.status()["functions"]["OrchestratorSweeper"]["busy"], "its end")
    for job in jobs:
        unsent(arena, job)
    possible = now()
    arena.control.arm()
    took = max(left(arena, job, "scraping", OUTAGE_S) for job in jobs) - possible
    with capsys.disabled():
        print(
            f"\n  relay down: the last of {len(jobs)} jobs went on {took:.1f} s after it was possible again"
        )
    assert 0 < took <= LEASED_S + SCHEDULE_S + AFTER_TICK_S


def test_jobs_continue_soon_after_the_database_is_back(
    kept: Arena, capsys: pytest.CaptureFixture[str]
) -> None:
    """The hardest moment: results are committed, and what follows from them is under way."""
    arena = kept
    arena.cloud.set_visibility(360)
    slow = Rule(_CHUNKING, "delay", times=10**6, seconds=2.0, name="slow-chunking")
    arena.control.arm([slow])
    jobs = [arena.submit(arena.page(arena.token("database"))) for _ in range(20)]
    refused = given_back(arena)
    called = eventually(lambda: happened(arena, slow) or None, "a call is under way")
    before = arena.stack.status()["services"]["postgres"]
    arena.control.set_toxics(postgres=Toxic("down"))
    os.kill(before["pid"], signal.SIGKILL)
    killed = time.monotonic()
    arena.control.arm()
    over = called + slow.seconds + 1
    eventually(lambda: now() > over and given_back(arena) > refused, "what a call gave cannot be written")
    arena.control.set_toxics()
    eventually(lambda: serves(arena, before["restarts"]), "the database is back", OUTAGE_S)
    back, unavailable = now(), time.monotonic() - killed
    later = sorted(end - back for end in ends_of(arena, jobs))
    first = min((each for each in later if each > 0), default=0.0)
    before_it = sum(each < 0 for each in later)
    with capsys.disabled():
        print(
            f"\n  database away for {unavailable:.1f} s; {before_it} of {len(jobs)} jobs were done,"
            f" the others went on {first:.1f} to {later[-1]:.1f} s after it was back"
        )
    assert later[-1] <= DATABASE_BACK_S


def happened(arena: Arena, rule: Rule) -> float:
    """Return when a fault happened last, 0 = never."""
    return max(
        (float(each["at"]) for each in arena.control.fired() if each["rule"] == rule.name), default=0.0
    )


def given_back(arena: Arena) -> int:
    """Return how many results were returned to the queue because the database was unavailable."""
    log = Path(arena.stack.state) / "logs" / "functions" / "OrchestratorResults.jsonl"
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return sum("message.given_back" in line and "database_unavailable" in line for line in lines)


def serves(arena: Arena, restarts: int) -> bool:
    service = arena.stack.status()["services"]["postgres"]
    if service["restarts"] <= restarts or not service["serving"]:
        return False
    try:
        with arena.cloud.database() as database:
            return database.execute("SELECT 1").fetchone() == (1,)
    except psycopg.OperationalError:
        return False


def ends_of(arena: Arena, jobs: list[Accepted]) -> list[float]:
    """Return when each job ended."""
    statement = "SELECT extract(epoch FROM ended_at)::float8 FROM jobs WHERE id = ANY(%s) AND status = 'done'"
    ids = [job.job_id for job in jobs]

    def look() -> list[float] | None:
        with arena.cloud.database() as database:
            found = [row[0] for row in database.execute(statement, (ids,)).fetchall()]
        return found if len(found) == len(jobs) else None

    return eventually(look, "every job is done", OUTAGE_S)
