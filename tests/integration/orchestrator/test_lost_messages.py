"""Lost messages on a real database: fifty out of a backlog of a thousand, and of five thousand."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from indexmill.platform.postgres.database import Database
from tests.support.sweeper import PostgresSweeperHarness

pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOST = 50


@pytest.fixture
def p(database_url: str) -> Iterator[PostgresSweeperHarness]:
    database = Database(database_url)
    yield PostgresSweeperHarness(database)
    database.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backlog", [1_000, pytest.param(5_000, marks=pytest.mark.long)])
def test_fifty_lost_out_of_thousands_all_end_and_no_more_are_sent_again(
    p: PostgresSweeperHarness, backlog: int
) -> None:
    p.submit_many(backlog)
    assert len(p.scrape.bodies) == backlog
    gone = set(random.Random(11).sample(range(backlog), LOST))
    p.scrape.bodies[:] = [body for at, body in enumerate(p.scrape.bodies) if at not in gone]
    lost = 0
    for minute in range(1, 13):
        lost += p.tick()["lost"]
        if minute == 5:
            found = p.rows("SELECT subject, detail FROM incidents WHERE closed_at IS NULL")
            assert found == [("scraping", {"missing": LOST})]
        p.scrape_at(range(backlog // 5))
        p.embed_all()
    assert p.rows("SELECT status, count(*) FROM jobs GROUP BY status") == [("done", backlog)]
    assert p.rows("SELECT sum(rescues) FROM outbox") == [(LOST,)]
    assert lost == LOST
    assert p.rows("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == [(0,)]
