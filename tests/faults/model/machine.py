"""Hypothesis state machine: submits, deliveries, crashes, losses, job actions and time in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from indexmill.orchestrator.store.admission import INTERNAL
from indexmill.orchestrator.store.rows import MOST_RESCUES
from tests.faults.model.backends import LIMITS
from tests.faults.model.crash_injector import Killed
from tests.faults.model.fake_sqs import Message, dlq_name
from tests.faults.model.message_locations import WorkItem
from tests.faults.model.site import SubmitKind
from tests.faults.model.system_under_test import SystemUnderTest

MOST_JOBS: Final = 4
MOST_REPLAYS: Final = 2
MOST_DEAD_LETTERS: Final = 2
"""Each may fail its job; with more of them few jobs would end as done."""
MOST_CRASHES: Final = 2
MOST_LOST: Final = 3
"""A message is sent again three times: a job whose every message is lost fails, and may."""
MOST_DISPATCHES: Final = 1 + MOST_RESCUES + MOST_JOBS
"""Of a stage of an attempt while nothing is submitted: once, by rescues, and when others fenced it out."""
_MOMENT_S: Final = 10
"""Shorter than a lease, and longer than an example takes: real time passes in Postgres as well."""
_LEASE_S: Final = 35
_STALE_S: Final = 31 * 60
_ROUNDS: Final = 40
_FINAL: Final = ("done", "failed")
_FAILED: Final = ("failed",)
_ACTIVE: Final = ("pending", "scraping", "chunking", "embedding")
_PIPELINE: Final = ("scrape", "callbacks", "chunk", "callbacks", "embed", "callbacks")

crash_points = st.none() | st.tuples(st.integers(0, 5), st.booleans())
kinds: st.SearchStrategy[SubmitKind] = st.sampled_from(["new", "same", "changed", "twice", "shaky"])
same_page_kinds: st.SearchStrategy[SubmitKind] = st.sampled_from(["same", "changed"])
first_submits = st.lists(kinds, max_size=3) | st.lists(same_page_kinds, min_size=2, max_size=3)


class JobsMachine(RuleBasedStateMachine):
    """Orders of events. After the last one everything is delivered without faults, and every job must end."""

    make: ClassVar[Callable[[], SystemUnderTest]]

    def __init__(self) -> None:
        super().__init__()
        self.system = type(self).make()
        self.seen: dict[str, str] = {}
        self.started: dict[tuple[str, int], datetime] = {}
        """When each attempt of a job was first seen as started."""
        self.lost = self.dead_letters = self.replays = self.crashes = 0

    @initialize(
        first=first_submits, ahead=st.sampled_from([0, 1, 2, 3, 4, 4, 4, 5, 6]), canceled=st.booleans()
    )
    def begin(self, first: list[SubmitKind], ahead: int, canceled: bool) -> None:
        """Begin at any stage: two jobs of one page at the same stage are rare by chance."""
        for kind in first:
            self.system.submit(kind)
        for name in _PIPELINE[:ahead]:
            self._drain(name)
        self.seen = self.system.jobs()
        if canceled and self._fitting(_ACTIVE):
            # The newest job: its fence covers the generations of older jobs too.
            self.system.cancel(self._fitting(_ACTIVE)[-1])

    @precondition(lambda self: len(self.seen) < MOST_JOBS)
    @rule(kind=kinds, crash=crash_points)
    def submit(self, kind: SubmitKind, crash: tuple[int, bool] | None) -> None:
        """Submit a page; the process may crash."""
        self._with_crash(crash, lambda: self.system.submit(kind))

    @precondition(lambda self: self._nonempty())
    @rule(data=st.data(), crash=crash_points, stays=st.booleans())
    def deliver(self, data: st.DataObject, crash: tuple[int, bool] | None, stays: bool) -> None:
        """Deliver some messages of a queue; the worker may crash, and a delete may be lost."""
        name = data.draw(st.sampled_from(self._nonempty()))
        waiting = self.system.queues[name].messages
        positions = st.lists(st.integers(0, len(waiting) - 1), min_size=1, max_size=3, unique=True)
        picked = [waiting[at] for at in data.draw(positions)]
        self._deliver(name, picked, crash, stays=stays)

    @precondition(lambda self: self._nonempty())
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        """Deliver all messages of a queue without faults."""
        self._drain(data.draw(st.sampled_from(self._nonempty())))

    @precondition(lambda self: self.crashes < MOST_CRASHES and self._work_queues())
    @rule(data=st.data(), at=st.sampled_from([0, 0, 1]))
    def crash(self, data: st.DataObject, at: int) -> None:
        """Crash the worker of one message at effect `at`, until the message is poison."""
        name = data.draw(st.sampled_from(self._work_queues()))
        message = data.draw(st.sampled_from(self.system.queues[name].messages))
        # Later tries have one more effect before: the note that the message is tried alone.
        for effect in (at, at + 1, at + 1):
            self._deliver(name, [message], (effect, False), stays=False)
        self.crashes += 1

    @rule(seconds=st.sampled_from([_MOMENT_S, _LEASE_S, _STALE_S]), crash=crash_points)
    def tick(self, seconds: int, crash: tuple[int, bool] | None) -> None:
        """Let time pass; the sweeper may crash."""
        self._with_crash(crash, lambda: self.system.tick(seconds))

    @precondition(lambda self: self.lost < MOST_LOST and self._nonempty())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Lose a message."""
        name = data.draw(st.sampled_from(self._nonempty()))
        self.system.lose(name, data.draw(st.sampled_from(self.system.queues[name].messages)))
        self.lost += 1

    @precondition(lambda self: self.dead_letters < MOST_DEAD_LETTERS and self._with_dlq())
    @rule(data=st.data(), slow=st.booleans())
    def move_to_dlq(self, data: st.DataObject, slow: bool) -> None:
        """Move a message to the dead-letter queue; with `slow`, a worker still has it in flight."""
        name = data.draw(st.sampled_from(self._with_dlq()))
        message = data.draw(st.sampled_from(self.system.queues[name].messages))
        self.system.queues[dlq_name(name)].messages.append(replace(message))
        if slow:
            # Handled at once, or the worker would mostly be faster.
            self._drain(dlq_name(name))
        else:
            self.system.queues[name].delete([message.id])
        self.dead_letters += 1

    @precondition(lambda self: self._fitting(_ACTIVE))
    @rule(data=st.data(), crash=crash_points)
    def cancel(self, data: st.DataObject, crash: tuple[int, bool] | None) -> None:
        """Cancel a job."""
        job_id = data.draw(st.sampled_from(self._fitting(_ACTIVE)))
        self._with_crash(crash, lambda: self.system.cancel(job_id))

    @precondition(lambda self: self._fitting(_FAILED))
    @rule(data=st.data(), crash=crash_points)
    def retry(self, data: st.DataObject, crash: tuple[int, bool] | None) -> None:
        """Retry a job."""
        job_id = data.draw(st.sampled_from(self._fitting(_FAILED)))
        self._with_crash(crash, lambda: self.system.retry(job_id))

    @precondition(lambda self: self._fitting(_FINAL) and self.replays < MOST_REPLAYS)
    @rule(data=st.data(), stored=st.booleans(), crash=crash_points)
    def replay(self, data: st.DataObject, stored: bool, crash: tuple[int, bool] | None) -> None:
        """Replay a job."""
        job_id = data.draw(st.sampled_from(self._fitting(_FINAL)))
        self._with_crash(crash, lambda: self.system.replay(job_id, stored=stored))
        self.replays += len(self.system.jobs()) - len(self.seen)

    @invariant()
    def no_job_disappears(self) -> None:
        """Assert that every accepted job still exists."""
        now = self.system.jobs()
        assert self.seen.keys() <= now.keys()
        self.seen = now

    @invariant()
    def no_job_is_stranded(self) -> None:
        """Assert that each active job's message is in a queue or the outbox, unless the model lost it."""
        stranded = self.system.stranded()
        assert not stranded, stranded

    @invariant()
    def no_quota_is_exceeded(self) -> None:
        """Assert that no hour has more starts than the caller's quota, whichever attempts they are of."""
        now = self.system.backend.clock.now()
        history = self.system.backend.history(self.system.caller.caller_id)
        for job_id, attempt, before, after in history:
            if (before, after in _FINAL) == ("pending", False):
                self.started.setdefault((job_id, attempt), now)
        quota = LIMITS.of(INTERNAL).max_per_hour
        assert quota is not None
        hour = [at for at in self.started.values() if at > now - timedelta(hours=1)]
        assert len(hour) <= quota, self.started

    def teardown(self) -> None:
        """Deliver everything without faults, then check end states."""
        try:
            before = self.system.dispatches()
            self._settle()
            left = {job: status for job, status in self.system.jobs().items() if status not in _FINAL}
            assert not left, f"stuck: {left}"
            self._fall_silent(before)
            violations = self.system.violations()
            assert not violations, violations
        finally:
            self.system.close()

    def _nonempty(self) -> list[str]:
        """Return queues that are not empty."""
        return sorted(name for name, queue in self.system.queues.items() if queue.messages)

    def _work_queues(self) -> list[str]:
        """Return queues of tasks with messages; a result never crashes its consumer."""
        return [name for name in self._with_dlq() if name != "callbacks"]

    def _fitting(self, statuses: tuple[str, ...]) -> list[str]:
        """Return jobs in one of these statuses."""
        return sorted(job for job, status in self.seen.items() if status in statuses)

    def _drain(self, name: str) -> None:
        self._deliver(name, list(self.system.queues[name].messages), None, stays=False)

    def _with_dlq(self) -> list[str]:
        """Return queues with messages and a dead-letter queue."""
        return [name for name in self._nonempty() if dlq_name(name) in self.system.queues]

    def _settle(self) -> None:
        for _ in range(_ROUNDS):
            # Dead letters first, while their messages may still be in flight.
            for name, queue in reversed(self.system.queues.items()):
                for _ in range(_ROUNDS):
                    if not queue.messages:
                        break
                    self._deliver(name, queue.messages[:10], None, stays=False)
            if all(status in _FINAL for status in self.system.jobs().values()):
                return
            self.system.tick(_LEASE_S)
            if not any(queue.messages for queue in self.system.queues.values()):
                self.system.tick(_STALE_S)

    def _fall_silent(self, before: Counter[WorkItem | None]) -> None:
        """Deliver what is left; without new submissions dispatches are bounded, and then there are none."""
        for _ in range(2):
            # Rows that a crashed process had claimed are due by then.
            self.system.tick(_LEASE_S)
            for _ in range(2 * len(self.system.queues)):
                for name in self._nonempty():
                    self._drain(name)
        settled = self.system.dispatches()
        often = (settled - before).most_common(1)
        assert not often or often[0][1] <= MOST_DISPATCHES, f"dispatched too often: {often}"
        self.system.tick(_LEASE_S)
        again = self.system.dispatches() - settled
        assert not self._nonempty(), f"dispatched without end: {again or self._nonempty()}"

    def _deliver(
        self, name: str, picked: list[Message], crash: tuple[int, bool] | None, *, stays: bool
    ) -> None:
        leaving: set[str] = set()

        def work() -> None:
            leaving.update(self.system.handle(name, picked))

        self._with_crash(crash, work)
        if not stays:
            queue = self.system.queues[name]
            queue.messages = [each for each in queue.messages if each.id not in leaving]

    def _with_crash(self, crash: tuple[int, bool] | None, work: Callable[[], None]) -> None:
        if crash is not None:
            self.system.crash_injector.arm(crash[0], after=crash[1])
        try:
            work()
        except Killed:
            pass
        finally:
            self.system.crash_injector.arm(None, after=False)


def machine(of: Callable[[], SystemUnderTest]) -> type[JobsMachine]:
    """Return the machine; `of` makes the system under test of each example."""

    class Bound(JobsMachine):
        make = staticmethod(of)

    return Bound
