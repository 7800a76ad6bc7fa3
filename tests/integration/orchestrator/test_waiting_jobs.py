"""Jobs that wait for hours or among many, and lost no message: the sweeper sends none again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

import pytest

from indexmill.contracts.messages import Retrying
from indexmill.platform.breakers import EMBEDDING
from indexmill.platform.postgres.database import Database
from tests.support.jobs import INTERNAL, scraped
from tests.support.sweeper import PostgresSweeperHarness

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MINUTES_OF_TWO_HOURS: Final = range(120)
MINUTES_OF_THREE_HOURS: Final = range(180)


@pytest.fixture
def harness(database_url: str) -> Iterator[PostgresSweeperHarness]:
    database = Database(database_url)
    yield PostgresSweeperHarness(database)
    database.close()


def sent_again(harness: PostgresSweeperHarness) -> object:
    return harness.rows("SELECT coalesce(sum(rescues), 0) FROM outbox")[0][0]


def ends(harness: PostgresSweeperHarness) -> list[tuple[object, ...]]:
    return harness.rows("SELECT status, count(*) FROM jobs GROUP BY status")


@pytest.mark.parametrize("subject", [pytest.param("scraping", marks=pytest.mark.long), "*"])
def test_a_stage_paused_for_three_hours(harness: PostgresSweeperHarness, subject: str) -> None:
    """A message in the queue that later ones of the caller overtook before: silence is its only sign."""
    harness.submit_many(1)
    harness.tick()
    harness.tick()
    harness.submit_many(5)
    harness.scrape_at(range(1, 6))
    harness.embed_all()
    harness.rows(f"INSERT INTO pauses VALUES ('{subject}', 'a test', 'me') RETURNING stage")
    for _ in MINUTES_OF_THREE_HOURS:
        harness.tick()
    assert not harness.switches["scraping"].on
    harness.rows("DELETE FROM pauses RETURNING stage")
    for _ in range(5):
        harness.tick()
    assert harness.switches["scraping"].on
    assert len(harness.scrape.bodies) == 1
    harness.scrape_at([0])
    harness.embed_all()
    assert ends(harness) == [("done", 6)]
    assert sent_again(harness) == 0


def fail_call(harness: PostgresSweeperHarness) -> None:
    """Let a call of the embedding endpoint fail: three open the breaker, later ones are failed probes."""
    state, now = harness.breakers.read()[EMBEDDING], harness.clock.now().timestamp()
    assert harness.breakers.replace(EMBEDDING, state, state.failed(now))


def test_a_breaker_open_for_three_hours(harness: PostgresSweeperHarness) -> None:
    harness.submit_many(1)
    harness.scrape_at([0])
    harness.tick()
    harness.tick()
    harness.submit_many(5)
    harness.scrape_at(range(5))
    overtaken, harness.embed.bodies[:] = harness.embed.bodies[:1], harness.embed.bodies[1:]
    harness.embed_all()
    harness.embed.bodies[:] = overtaken
    for _ in range(3):
        fail_call(harness)
    switched = set()
    for minute in MINUTES_OF_THREE_HOURS:
        for seconds in (20, 40):
            harness.tick(seconds)
            switched.add(harness.switches["embedding"].on)
        if minute % 2:
            fail_call(harness)
    assert switched == {True, False}, "open, and half-open when a probe is due"
    state = harness.breakers.read()[EMBEDDING]
    assert harness.breakers.replace(EMBEDDING, state, state.closed(harness.clock.now().timestamp()))
    harness.tick()
    assert len(harness.embed.bodies) == 1
    harness.embed_all()
    assert ends(harness) == [("done", 6)]
    assert sent_again(harness) == 0


def test_a_retry_after_of_two_hours(harness: PostgresSweeperHarness) -> None:
    (waiting,) = harness.submit_many(1)
    at = harness.clock.now() + timedelta(hours=2)
    later = Retrying(tries=1, next_retry_at=at, retry_in_s=7_200.0, cause="http_503")
    harness.deliver(
        scraped(waiting).model_copy(update={"status": "retrying", "document": None, "retrying": later})
    )
    for _ in MINUTES_OF_TWO_HOURS:
        harness.submit_many(1)
        harness.scrape_at([1])
        harness.embed_all()
        harness.tick()
    assert len(harness.scrape.bodies) == 1
    harness.scrape_at([0])
    harness.embed_all()
    assert ends(harness) == [("done", 121)]
    assert sent_again(harness) == 0


@pytest.mark.parametrize("order", [pytest.param("in order", marks=pytest.mark.long), "in any order"])
def test_four_hundred_jobs_of_one_domain_at_one_a_second(harness: PostgresSweeperHarness, order: str) -> None:
    """A hundred are submitted each minute, sixty are done: later ones overtake earlier ones for minutes."""
    chance = random.Random(4)
    minutes = 0
    while minutes < 4 or harness.scrape.bodies:
        if minutes < 4:
            harness.submit_many(100, INTERNAL)
        waiting = range(len(harness.scrape.bodies))
        harness.scrape_at(
            waiting[:60] if order == "in order" else chance.sample(waiting, min(60, len(waiting)))
        )
        harness.embed_all()
        harness.tick()
        minutes += 1
    assert minutes == 7
    assert ends(harness) == [("done", 400)]
    assert sent_again(harness) == 0
