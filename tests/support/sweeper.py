"""The sweeper on twins."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.embedding.ports import Space
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import StaleJob, SweepStore
from indexmill.orchestrator.sweeper.sweep import SweepJobs
from indexmill.orchestrator.wiring import Parts, SweepParts, assemble_sweeper
from indexmill.platform.postgres.database import Database
from tests.support.index_builders import SPACE
from tests.support.jobs import embedded, scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs
from tests.twins.queues import InMemoryQueue
from tests.twins.state_table import InMemoryBreakers, in_memory_mirror
from tests.twins.sweep_store import InMemorySweep

TICK_S = 60.0
_AT_ONCE = 100
_TIMES = {
    "jobs": ("created_at", "updated_at", "next_retry_at"),
    "outbox": ("created_at", "sent_at", "claimed_until"),
    "sweep_state": ("counted_at",),
    "incidents": ("opened_at", "closed_at"),
}
"""Columns that `tick` moves into the past."""


class QueueBacklog:
    """Backlog of a queue without a consumer."""

    def __init__(self, queue: InMemoryQueue) -> None:
        """`queue` may be changed meanwhile."""
        self._queue = queue

    def messages(self) -> int:
        """Return its length; unreachable with it."""
        if self._queue.unavailable:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be counted.")
        return len(self._queue.bodies)


@dataclass
class InMemorySwitch:
    """Remembers how it is set; `broken` makes it unreachable."""

    on: bool = True
    broken: bool = False

    def set(self, *, on: bool) -> bool:
        """Turn it."""
        if self.broken:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "It cannot be switched.")
        changed, self.on = self.on != on, on
        return changed


@dataclass
class CountedBuilder:
    """Counts how often it was started; `broken` makes it unreachable."""

    started: int = 0
    broken: bool = False

    def start(self) -> None:
        """Count."""
        if self.broken:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "It cannot be invoked.")
        self.started += 1


class SweeperHarness(OrchestratorHarness):
    """The pipeline on twins, its sweeper, and a callback queue without a consumer."""

    def __init__(self, store: type[InMemoryJobs] = InMemoryJobs) -> None:
        """Nothing paused, nothing lost."""
        super().__init__(store(FrozenClock()))
        assert isinstance(self.store, InMemoryJobs)
        self.jobs = self.store
        self.view = InMemorySweep(self.jobs)
        self.reports = InMemoryQueue()
        self.switches = {stage: InMemorySwitch() for stage in self.queues}
        self.breakers = InMemoryBreakers()
        self.index_builder = CountedBuilder()
        self.mirror = in_memory_mirror()
        self.sweep = self.sweeper(self.view)

    def sweeper(self, store: SweepStore) -> SweepJobs:
        """Return a sweeper over `store`."""
        own = SweepParts(
            store=store,
            queues={stage: QueueBacklog(queue) for stage, queue in self.queues.items()},
            callbacks=QueueBacklog(self.reports),
            switches=dict(self.switches),
            breakers=self.breakers,
            index_builder=self.index_builder,
            mirror=self.mirror,
            clock=self.clock,
            model=SPACE.model,
            dimension=SPACE.dimension,
        )
        parts = Parts(self.store, dict(self.queues), self.observability)
        return assemble_sweeper(parts, own)

    def tick(self, times: int = 1) -> list[dict[str, int]]:
        """Let that many minutes pass, each with a sweep at its end."""
        done = []
        for _ in range(times):
            self.clock.tick(TICK_S)
            done.append(self.sweep())
        return done

    def stale_job(self, job_id: str) -> StaleJob:
        """Return what the sweeper sees of a job."""
        stage = self.jobs.jobs[job_id]["status"]
        (found,) = [
            each
            for each in self.view.find_stale(stage, 1_000, self.clock.now(), overtaken=False)
            if each.job_id == job_id
        ]
        return found


class PostgresSweeperHarness(OrchestratorHarness):
    """The Orchestrator and its sweeper on Postgres, with queues that only the test empties."""

    def __init__(self, database: Database, space: Space = SPACE) -> None:
        """Nothing paused, nothing lost."""
        super().__init__(JobStore(database))
        self.database = database
        self.switches = {stage: InMemorySwitch() for stage in self.queues}
        self.breakers = InMemoryBreakers()
        self.index_builder = CountedBuilder()
        self.mirror = in_memory_mirror()
        own = SweepParts(
            store=SweepStore(database),
            queues={stage: QueueBacklog(queue) for stage, queue in self.queues.items()},
            callbacks=QueueBacklog(InMemoryQueue()),
            switches=dict(self.switches),
            breakers=self.breakers,
            index_builder=self.index_builder,
            mirror=self.mirror,
            clock=self.clock,
            model=space.model,
            dimension=space.dimension,
        )
        self.sweep = assemble_sweeper(Parts(self.store, dict(self.queues), self.observability), own)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        """Return the rows of a statement."""
        return self.database.connection().execute(statement.encode()).fetchall()

    def tick(self, seconds: float = TICK_S) -> dict[str, int]:
        """Let time pass, with a sweep at its end."""
        self.clock.tick(seconds)
        for table, columns in _TIMES.items():
            earlier = ", ".join(f"{name} = {name} - interval '{seconds} s'" for name in columns)
            self.database.connection().execute(f"UPDATE {table} SET {earlier}".encode())
        return self.sweep()

    def scrape_at(self, positions: Iterable[int]) -> None:
        """Let a worker handle the messages at these positions of the scrape queue."""
        chosen = set(positions)
        taken = [body for at, body in enumerate(self.scrape.bodies) if at in chosen]
        self.scrape.bodies[:] = [body for at, body in enumerate(self.scrape.bodies) if at not in chosen]
        for start in range(0, len(taken), _AT_ONCE):
            self.deliver(*(scraped(job_of(body)) for body in taken[start : start + _AT_ONCE]))

    def embed_all(self) -> None:
        """Let a worker handle every message of the embed queue."""
        taken, self.embed.bodies[:] = list(self.embed.bodies), []
        for start in range(0, len(taken), _AT_ONCE):
            self.deliver(*(embedded(job_of(body)) for body in taken[start : start + _AT_ONCE]))


def job_of(body: str) -> str:
    """Return the job that a task belongs to."""
    return str(json.loads(body)["job_id"])
