"""Discrete-event simulation of the pipeline: queues with batches, workers, and cores that all of them share.

A job is submitted, and passes scrape, results, chunk, results, embed, results. A poller takes what is in its
queue, up to a batch, as soon as something is; while an invocation is in flight it waits a little after a
batch that was not full, as `local/triggers/sqs_polling.py` does. An invocation with n messages needs
`fixed + each * n` of CPU, of which a share delays its messages and the rest comes after them, and waits for
what is outside. All CPU is shared by the machine's cores, evenly.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

STEPS: Final = ("submit", "scrape", "results", "chunk", "results", "embed", "results")
_ENOUGH: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Work:
    """Needs of an invocation, in seconds: CPU, for n messages `fixed + each * n`; then a wait `outside`."""

    fixed: float
    each: float
    outside: float = 0.0

    def cpu(self, messages: int) -> float:
        """Return CPU seconds of an invocation with `messages`."""
        return self.fixed + self.each * messages


@dataclass(frozen=True, slots=True)
class Machine:
    """The rest of a simulated system."""

    cores: float
    """For everything that needs CPU."""
    others: float = 0.0
    """Processes, on average, that compete for them and have no part in it."""
    critical: float = 1.0
    """Share of an invocation's CPU that delays its messages; the rest follows."""
    batch: int = 10
    linger_s: float = 0.05
    at_once: int = 2
    """Invocations of one worker at once."""


@dataclass(slots=True)
class Outcome:
    """Figures of a run."""

    latencies_s: list[float] = field(default_factory=list)
    invocations: dict[str, int] = field(default_factory=dict)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def latency(self, share: float) -> float:
        """Return the latency that `share` of the jobs did not exceed, seconds."""
        ordered = sorted(self.latencies_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@dataclass(slots=True)
class _Queue:
    worker: str
    waiting: list[int] = field(default_factory=list)
    """Jobs, in the order of their messages."""
    next: float = -1e9
    """Earliest receive while an invocation is in flight."""


class Simulation:
    """One run over `arrivals`, the moments of the submits in seconds."""

    def __init__(self, works: Mapping[str, Work], machine: Machine, arrivals: Sequence[float]) -> None:
        self._works, self._machine, self._arrivals = works, machine, arrivals
        self._now = 0.0
        self._count = itertools.count()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._running: dict[int, tuple[float, Callable[[], None]]] = {}
        """CPU seconds that are left, and what happens then."""
        self._busy: dict[str, int] = dict.fromkeys(works, 0)
        # Results of all stages share a queue.
        self._queues = {name: _Queue(name) for name in works if name != "submit"}
        self._step = [0] * len(arrivals)
        self._outcome = Outcome(invocations=dict.fromkeys(works, 0))

    def run(self) -> Outcome:
        """Return the figures when all jobs are done."""
        for job, at in enumerate(self._arrivals):
            self._at(at, lambda job=job: self._invoke("submit", [job]))  # type: ignore[misc]
        while self._timers or self._running:
            self._advance()
        self._outcome.wall_s = self._now
        return self._outcome

    def _advance(self) -> None:
        """Go to the next timer or to the next end of CPU work."""
        competing = len(self._running) + self._machine.others
        rate = min(1.0, self._machine.cores / competing) if self._running else 1.0
        shortest = min((left for left, _ in self._running.values()), default=float("inf"))
        ends = self._now + shortest / rate
        timer = self._timers[0][0] if self._timers else float("inf")
        passed = max(0.0, min(ends, timer) - self._now)
        self._now += passed
        self._running = {key: (left - passed * rate, then) for key, (left, then) in self._running.items()}
        for key in [key for key, (left, _) in self._running.items() if left <= _ENOUGH]:
            self._running.pop(key)[1]()
        while self._timers and self._timers[0][0] <= self._now + _ENOUGH:
            heapq.heappop(self._timers)[2]()

    def _invoke(self, worker: str, jobs: list[int]) -> None:
        work = self._works[worker]
        cpu = work.cpu(len(jobs))
        self._busy[worker] += 1
        self._outcome.invocations[worker] += 1
        self._outcome.cpu_s += cpu
        critical = cpu * self._machine.critical

        def finished() -> None:
            self._busy[worker] -= 1
            self._send(jobs)
            if cpu > critical:
                self._compute(cpu - critical, lambda: None)
            if worker in self._queues:
                self._poll(self._queues[worker])

        self._compute(critical, lambda: self._at(self._now + work.outside, finished))

    def _send(self, jobs: list[int]) -> None:
        """Put the jobs into the queue of their next step; those without one are done."""
        touched = []
        for job in jobs:
            self._step[job] += 1
            if self._step[job] == len(STEPS):
                self._outcome.latencies_s.append(self._now - self._arrivals[job])
                continue
            queue = self._queues[STEPS[self._step[job]]]
            queue.waiting.append(job)
            touched.append(queue)
        for queue in {id(each): each for each in touched}.values():
            self._poll(queue)

    def _poll(self, queue: _Queue) -> None:
        if not queue.waiting or self._busy[queue.worker] >= self._machine.at_once:
            return
        if self._busy[queue.worker] and self._now < queue.next - _ENOUGH:
            self._at(queue.next, lambda: self._poll(queue))
            return
        taken, queue.waiting = queue.waiting[: self._machine.batch], queue.waiting[self._machine.batch :]
        full = len(taken) == self._machine.batch
        queue.next = self._now + (0.0 if full else self._machine.linger_s)
        self._invoke(queue.worker, taken)
        self._poll(queue)

    def _at(self, moment: float, then: Callable[[], None]) -> None:
        heapq.heappush(self._timers, (moment, next(self._count), then))

    def _compute(self, seconds: float, then: Callable[[], None]) -> None:
        self._running[next(self._count)] = (seconds, then)


def poisson(rate: float, seconds: float, seed: int = 7) -> list[float]:
    """Return moments of arrival, `rate` a second on average, at random."""
    chance = random.Random(seed)
    moments, now = [], 0.0
    while (now := now + chance.expovariate(rate)) < seconds:
        moments.append(now)
    return moments


def simulate(works: Mapping[str, Work], machine: Machine, arrivals: Sequence[float]) -> Outcome:
    """Run a simulation."""
    return Simulation(works, machine, arrivals).run()
