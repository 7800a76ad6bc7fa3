"""Lost messages on a real database: fifty out of a backlog of five thousand."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from indexmill.platform.postgres.database import Database
from tests.support.sweeper import PostgresSweeperHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BACKLOG, LOST = 5_000, 50


@pytest.fixture
def p(database_url: str) -> Iterator[PostgresSweeperHarness]:
    database = Database(database_url)
    yield PostgresSweeperHarness(database)
    database.close()


@pytest.mark.timeout(300)
def test_fifty_lost_out_of_five_thousand_all_end_and_no_more_are_sent_again(
    p: PostgresSweeperHarness,
) -> None:
    p.submit_many(BACKLOG)
    assert len(p.scrape.bodies) == BACKLOG
    gone = set(random.Random(11).sample(range(BACKLOG), LOST))
    p.scrape.bodies[:] = [body for at, body in enumerate(p.scrape.bodies) if at not in gone]
    lost = 0
    for minute in range(1, 13):
        lost += p.tick()["lost"]
        if minute == 5:
            found = p.rows("SELECT subject, detail FROM incidents WHERE closed_at IS NULL")
            assert found == [("scraping", {"missing": LOST})]
        p.scrape_at(range(1_000))
        p.embed_all()
    assert p.rows("SELECT status, count(*) FROM jobs GROUP BY status") == [("done", BACKLOG)]
    assert p.rows("SELECT sum(rescues) FROM outbox") == [(LOST,)]
    assert lost == LOST
    assert p.rows("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == [(0,)]
