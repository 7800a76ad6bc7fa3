"""The model: submits, deliveries, deaths and time, in every order that hypothesis can think of."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.faults.model.fuse import Killed
from tests.faults.model.line import Message
from tests.faults.model.system import System

MOST_JOBS: Final = 4
MOST_LOST: Final = 3
"""A message is sent again three times: a job whose every message is lost fails, and may."""
_MOMENT_S: Final = 10
"""Short of a claim, and long beside what an example really takes: Postgres sees real time pass as well."""
_CLAIM_S: Final = 35
_STUCK_S: Final = 31 * 60
_ROUNDS: Final = 40
_FINAL: Final = ("done", "failed")

deaths = st.none() | st.tuples(st.integers(0, 5), st.booleans())


class Jobs(RuleBasedStateMachine):
    """At its end, without further faults, every job must come to its end."""

    make: ClassVar[Callable[[], System]]

    def __init__(self) -> None:
        super().__init__()
        self.system = type(self).make()
        self.seen: dict[str, str] = {}
        self.lost = 0

    @precondition(lambda self: len(self.seen) < MOST_JOBS)
    @rule(death=deaths)
    def submit(self, death: tuple[int, bool] | None) -> None:
        """Submit a page; the process may die on the way."""
        self._cut_off(death, self.system.submit)

    @precondition(lambda self: self._waiting())
    @rule(data=st.data(), death=deaths, stays=st.booleans())
    def deliver(self, data: st.DataObject, death: tuple[int, bool] | None, stays: bool) -> None:
        """Deliver some messages of a queue; the worker may die, and a delete may get lost."""
        name = data.draw(st.sampled_from(self._waiting()))
        waiting = self.system.lines[name].messages
        positions = st.lists(st.integers(0, len(waiting) - 1), min_size=1, max_size=3, unique=True)
        picked = [waiting[at] for at in data.draw(positions)]
        self._deliver(name, picked, death, stays=stays)

    @rule(seconds=st.sampled_from([_MOMENT_S, _CLAIM_S, _STUCK_S]), death=deaths)
    def tick(self, seconds: int, death: tuple[int, bool] | None) -> None:
        """Let time pass; the sweeper may die."""
        self._cut_off(death, lambda: self.system.tick(seconds))

    @precondition(lambda self: "lose" in self.system.verbs and self.lost < MOST_LOST and self._waiting())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Let a message vanish, behind everybody's back."""
        line = self.system.lines[data.draw(st.sampled_from(self._waiting()))]
        del line.messages[data.draw(st.integers(0, len(line.messages) - 1))]
        self.lost += 1

    @precondition(lambda self: self.seen and "cancel" in self.system.verbs)
    @rule(data=st.data(), death=deaths)
    def cancel(self, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """Cancel a job."""
        job_id = data.draw(st.sampled_from(sorted(self.seen)))
        self._cut_off(death, lambda: self.system.cancel(job_id))

    @precondition(lambda self: self.seen and "retry" in self.system.verbs)
    @rule(data=st.data(), death=deaths)
    def retry(self, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """Retry a job."""
        job_id = data.draw(st.sampled_from(sorted(self.seen)))
        self._cut_off(death, lambda: self.system.retry(job_id))

    @invariant()
    def no_job_disappears(self) -> None:
        """What was accepted once stays."""
        now = self.system.jobs()
        assert self.seen.keys() <= now.keys()
        self.seen = now

    def teardown(self) -> None:
        """Let everything come to rest, and look at what became of the jobs."""
        try:
            self._rest()
            left = {job: status for job, status in self.system.jobs().items() if status not in _FINAL}
            assert not left, f"stuck: {left}"
            assert self.system.wrongs() == []
        finally:
            self.system.close()

    def _waiting(self) -> list[str]:
        """Queues that are not empty."""
        return sorted(name for name, line in self.system.lines.items() if line.messages)

    def _rest(self) -> None:
        for _ in range(_ROUNDS):
            for name, line in self.system.lines.items():
                while line.messages:
                    self._deliver(name, line.messages[:10], None, stays=False)
            if all(status in _FINAL for status in self.system.jobs().values()):
                return
            self.system.tick(_CLAIM_S)
            if not any(line.messages for line in self.system.lines.values()):
                self.system.tick(_STUCK_S)

    def _deliver(
        self, name: str, picked: list[Message], death: tuple[int, bool] | None, *, stays: bool
    ) -> None:
        leaving: set[str] = set()

        def work() -> None:
            leaving.update(self.system.handle(name, picked))

        self._cut_off(death, work)
        if not stays:
            line = self.system.lines[name]
            line.messages = [each for each in line.messages if each.id not in leaving]

    def _cut_off(self, death: tuple[int, bool] | None, work: Callable[[], None]) -> None:
        if death is not None:
            self.system.fuse.arm(death[0], after=death[1])
        try:
            work()
        except Killed:
            pass
        finally:
            self.system.fuse.arm(None, after=False)


def machine(of: Callable[[], System]) -> type[Jobs]:
    """Return the machine over what `of` makes, one for each example."""

    class Bound(Jobs):
        make = staticmethod(of)

    return Bound
