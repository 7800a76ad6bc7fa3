"""Lost messages on a real database: fifty out of a backlog of five thousand."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from indexmill.contracts.http_jobs import SubmitRequest
from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres.sweep import PostgresSweep
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.sweep import SweepJobs
from indexmill.orchestrator.wiring import Parts, SweepParts, assemble_sweeper
from indexmill.platform.postgres.database import Database
from indexmill.testing.breakers import InMemoryBreakers
from indexmill.testing.queues import InMemoryQueue
from tests.support.jobs import CALLER, URL, Pipeline, embedded, scraped
from tests.support.sweeper import QueueBacklog

pytestmark = [pytest.mark.integration, pytest.mark.slow]

BACKLOG, LOST, AT_ONCE = 5_000, 50, 100


class RealSweeping(Pipeline):
    """The pipeline over Postgres, with queues that a test empties."""

    def __init__(self, database: Database) -> None:
        self.database = database
        super().__init__(PostgresJobs(database))
        view = PostgresSweep(database)
        own = SweepParts(
            store=view,
            queues={stage: QueueBacklog(queue) for stage, queue in self.queues.items()},
            callbacks=QueueBacklog(InMemoryQueue()),
            switches={},
            breakers=InMemoryBreakers(),
            clock=self.clock,
        )
        parts = Parts(self.store, dict(self.queues), self.observability)
        self.sweep: SweepJobs = assemble_sweeper(parts, own)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        return self.database.connection().execute(statement.encode()).fetchall()

    def tick(self) -> dict[str, int]:
        """Let a minute pass, and sweep."""
        for table, columns in {
            "jobs": ("created_at", "updated_at"),
            "outbox": ("created_at", "sent_at", "claimed_until"),
            "sweep_state": ("counted_at",),
        }.items():
            earlier = ", ".join(f"{name} = {name} - interval '1 minute'" for name in columns)
            self.database.connection().execute(f"UPDATE {table} SET {earlier}".encode())
        return self.sweep()

    def submit_many(self) -> None:
        use_case = SubmitJobs(self.store, self.relay)
        for start in range(0, BACKLOG, AT_ONCE):
            urls = [f"{URL}/{number}" for number in range(start, start + AT_ONCE)]
            use_case(CALLER, SubmitRequest(urls=urls, corpus_name="docs"), "req-1")

    def work(self, most: int = BACKLOG) -> None:
        """Do `most` scrape messages and every embed message."""
        taken, self.scrape.bodies[:] = self.scrape.bodies[:most], self.scrape.bodies[most:]
        for start in range(0, len(taken), AT_ONCE):
            self.deliver(*(scraped(stored_job(body)) for body in taken[start : start + AT_ONCE]))
        tasks, self.embed.bodies[:] = list(self.embed.bodies), []
        for start in range(0, len(tasks), AT_ONCE):
            self.deliver(*(embedded(stored_job(body)) for body in tasks[start : start + AT_ONCE]))


def stored_job(body: str) -> str:
    return str(json.loads(body)["job_id"])


@pytest.fixture
def p(database_url: str) -> Iterator[RealSweeping]:
    database = Database(database_url)
    yield RealSweeping(database)
    database.close()


@pytest.mark.timeout(300)
def test_fifty_lost_out_of_five_thousand_all_end_and_no_more_are_sent_again(p: RealSweeping) -> None:
    p.submit_many()
    assert len(p.scrape.bodies) == BACKLOG
    gone = set(random.Random(11).sample(range(BACKLOG), LOST))
    p.scrape.bodies[:] = [body for at, body in enumerate(p.scrape.bodies) if at not in gone]
    lost = 0
    for minute in range(1, 13):
        lost += p.tick()["lost"]
        if minute == 5:
            found = p.rows("SELECT subject, detail FROM incidents WHERE closed_at IS NULL")
            assert found == [("scraping", {"missing": LOST})]
        p.work(1_000)
    assert p.rows("SELECT status, count(*) FROM jobs GROUP BY status") == [("done", BACKLOG)]
    assert p.rows("SELECT sum(rescues) FROM outbox") == [(LOST,)]
    assert lost == LOST
    assert p.rows("SELECT count(*) FROM incidents WHERE closed_at IS NULL") == [(0,)]
