"""The sweeper on twins."""

from __future__ import annotations

from dataclasses import dataclass

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.ports_sweep import Silent, SweepStore
from indexmill.orchestrator.sweep import SweepJobs
from indexmill.orchestrator.wiring import Parts, SweepParts, assemble_sweeper
from indexmill.testing.breakers import InMemoryBreakers
from indexmill.testing.clock import FrozenClock
from indexmill.testing.jobs import InMemoryJobs
from indexmill.testing.queues import InMemoryQueue
from indexmill.testing.sweep_store import InMemorySweep
from tests.support.jobs import Pipeline

TICK_S = 60.0


class QueueBacklog:
    """Backlog of a queue without a consumer."""

    def __init__(self, queue: InMemoryQueue) -> None:
        """`queue` may be changed meanwhile."""
        self._queue = queue

    def messages(self) -> int:
        """Return its length; unreachable with it."""
        if self._queue.away:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be counted.")
        return len(self._queue.bodies)


@dataclass
class TwinSwitch:
    """Remembers how it is set; `broken` makes it unreachable."""

    on: bool = True
    broken: bool = False

    def set(self, *, on: bool) -> bool:
        """Turn it."""
        if self.broken:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "It cannot be switched.")
        changed, self.on = self.on != on, on
        return changed


class Sweeping(Pipeline):
    """The pipeline on twins, its sweeper, and a callback queue without a consumer."""

    def __init__(self, store: type[InMemoryJobs] = InMemoryJobs) -> None:
        """Nothing paused, nothing lost."""
        super().__init__(store(FrozenClock()))
        assert isinstance(self.store, InMemoryJobs)
        self.jobs = self.store
        self.view = InMemorySweep(self.jobs)
        self.reports = InMemoryQueue()
        self.switches = {stage: TwinSwitch() for stage in self.queues}
        self.breakers = InMemoryBreakers()
        self.sweep = self.sweeper(self.view)

    def sweeper(self, store: SweepStore) -> SweepJobs:
        """Return a sweeper over `store`."""
        own = SweepParts(
            store=store,
            queues={stage: QueueBacklog(queue) for stage, queue in self.queues.items()},
            callbacks=QueueBacklog(self.reports),
            switches=dict(self.switches),
            breakers=self.breakers,
            clock=self.clock,
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

    def told(self, job_id: str) -> Silent:
        """Return what the sweeper sees of a job."""
        stage = self.jobs.jobs[job_id]["status"]
        (found,) = [
            each
            for each in self.view.silent(stage, 1_000, self.clock.now(), passed=False)
            if each.job_id == job_id
        ]
        return found
