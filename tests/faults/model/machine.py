"""The model: submits, deliveries, deaths and time, in every order that hypothesis can think of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.faults.model.fuse import Killed
from tests.faults.model.line import Message
from tests.faults.model.system import Kind, System, dead_line

MOST_JOBS: Final = 4
MOST_REPLAYS: Final = 2
MOST_BURIED: Final = 2
"""Each may fail its job; more of them would leave little to look at."""
MOST_CRASHES: Final = 2
MOST_LOST: Final = 3
"""A message is sent again three times: a job whose every message is lost fails, and may."""
_MOMENT_S: Final = 10
"""Short of a claim, and long beside what an example really takes: Postgres sees real time pass as well."""
_CLAIM_S: Final = 35
_STUCK_S: Final = 31 * 60
_ROUNDS: Final = 40
_FINAL: Final = ("done", "failed")
_FAILED: Final = ("failed",)
_AT_WORK: Final = ("pending", "scraping", "chunking", "embedding")
_WAY: Final = ("scrape", "callbacks", "chunk", "callbacks", "embed", "callbacks")

deaths = st.none() | st.tuples(st.integers(0, 5), st.booleans())
kinds: st.SearchStrategy[Kind] = st.sampled_from(["new", "same", "changed", "twice", "shaky"])
rivals: st.SearchStrategy[Kind] = st.sampled_from(["same", "changed"])
beginnings = st.lists(kinds, max_size=3) | st.lists(rivals, min_size=2, max_size=3)


class Jobs(RuleBasedStateMachine):
    """At its end, without further faults, every job must come to its end."""

    make: ClassVar[Callable[[], System]]

    def __init__(self) -> None:
        super().__init__()
        self.system = type(self).make()
        self.seen: dict[str, str] = {}
        self.lost = self.buried = self.replays = self.crashes = 0

    @initialize(first=beginnings, ahead=st.sampled_from([0, 1, 2, 3, 4, 4, 4, 5, 6]), canceled=st.booleans())
    def begin(self, first: list[Kind], ahead: int, canceled: bool) -> None:
        """Begin anywhere: what needs two jobs of one page at the same stage hardly comes about by chance."""
        for kind in first:
            self.system.submit(kind)
        for name in _WAY[:ahead]:
            if name in self.system.lines:
                self._work_off(name)
        self.seen = self.system.jobs()
        if canceled and "cancel" in self.system.verbs and self._fitting(_AT_WORK):
            # The newest: what was issued to its elders is then fenced out as well.
            self.system.cancel(self._fitting(_AT_WORK)[-1])

    @precondition(lambda self: len(self.seen) < MOST_JOBS)
    @rule(kind=kinds, death=deaths)
    def submit(self, kind: Kind, death: tuple[int, bool] | None) -> None:
        """Submit a page; the process may die on the way."""
        self._cut_off(death, lambda: self.system.submit(kind))

    @precondition(lambda self: self._waiting())
    @rule(data=st.data(), death=deaths, stays=st.booleans())
    def deliver(self, data: st.DataObject, death: tuple[int, bool] | None, stays: bool) -> None:
        """Deliver some messages of a queue; the worker may die, and a delete may get lost."""
        name = data.draw(st.sampled_from(self._waiting()))
        waiting = self.system.lines[name].messages
        positions = st.lists(st.integers(0, len(waiting) - 1), min_size=1, max_size=3, unique=True)
        picked = [waiting[at] for at in data.draw(positions)]
        self._deliver(name, picked, death, stays=stays)

    @precondition(lambda self: self._waiting())
    @rule(data=st.data())
    def work_off(self, data: st.DataObject) -> None:
        """Let a worker do all that waits for it, and nothing goes wrong."""
        self._work_off(data.draw(st.sampled_from(self._waiting())))

    @precondition(lambda self: self.crashes < MOST_CRASHES and self._work())
    @rule(data=st.data(), at=st.sampled_from([0, 0, 1]))
    def crash(self, data: st.DataObject, at: int) -> None:
        """Let a message take its worker along at effect `at`, as often as it takes to give it up."""
        name = data.draw(st.sampled_from(self._work()))
        message = data.draw(st.sampled_from(self.system.lines[name].messages))
        # The later tries come behind one more effect: the note that the message is tried alone.
        for effect in (at, at + 1, at + 1):
            self._deliver(name, [message], (effect, False), stays=False)
        self.crashes += 1

    @rule(seconds=st.sampled_from([_MOMENT_S, _CLAIM_S, _STUCK_S]), death=deaths)
    def tick(self, seconds: int, death: tuple[int, bool] | None) -> None:
        """Let time pass; the sweeper may die."""
        self._cut_off(death, lambda: self.system.tick(seconds))

    @precondition(lambda self: "lose" in self.system.verbs and self.lost < MOST_LOST and self._waiting())
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """Let a message vanish, behind everybody's back."""
        name = data.draw(st.sampled_from(self._waiting()))
        self.system.lose(name, data.draw(st.sampled_from(self.system.lines[name].messages)))
        self.lost += 1

    @precondition(lambda self: "bury" in self.system.verbs and self.buried < MOST_BURIED and self._mortal())
    @rule(data=st.data(), slow=st.booleans())
    def bury(self, data: st.DataObject, slow: bool) -> None:
        """Let the queue set a message aside that was received too often; a `slow` worker is still at it."""
        name = data.draw(st.sampled_from(self._mortal()))
        message = data.draw(st.sampled_from(self.system.lines[name].messages))
        self.system.lines[dead_line(name)].messages.append(replace(message))
        if slow:
            # Told at once, or the worker would mostly be faster.
            self._work_off(dead_line(name))
        else:
            self.system.lines[name].delete([message.id])
        self.buried += 1

    @precondition(lambda self: "cancel" in self.system.verbs and self._fitting(_AT_WORK))
    @rule(data=st.data(), death=deaths)
    def cancel(self, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """Cancel a job."""
        job_id = data.draw(st.sampled_from(self._fitting(_AT_WORK)))
        self._cut_off(death, lambda: self.system.cancel(job_id))

    @precondition(lambda self: "retry" in self.system.verbs and self._fitting(_FAILED))
    @rule(data=st.data(), death=deaths)
    def retry(self, data: st.DataObject, death: tuple[int, bool] | None) -> None:
        """Retry a job."""
        job_id = data.draw(st.sampled_from(self._fitting(_FAILED)))
        self._cut_off(death, lambda: self.system.retry(job_id))

    @precondition(
        lambda self: "replay" in self.system.verbs and self._fitting(_FINAL) and self.replays < MOST_REPLAYS
    )
    @rule(data=st.data(), stored=st.booleans(), death=deaths)
    def replay(self, data: st.DataObject, stored: bool, death: tuple[int, bool] | None) -> None:
        """Do a job again as a new one."""
        job_id = data.draw(st.sampled_from(self._fitting(_FINAL)))
        self._cut_off(death, lambda: self.system.replay(job_id, stored=stored))
        self.replays += len(self.system.jobs()) - len(self.seen)

    @invariant()
    def no_job_disappears(self) -> None:
        """What was accepted once stays."""
        now = self.system.jobs()
        assert self.seen.keys() <= now.keys()
        self.seen = now

    @invariant()
    def no_job_is_stranded(self) -> None:
        """Whoever dies whenever: what a job waits for is somewhere, unless it was lost just like that."""
        stranded = self.system.stranded()
        assert not stranded, stranded

    def teardown(self) -> None:
        """Let everything come to rest, and look at what became of the jobs."""
        try:
            self._rest()
            left = {job: status for job, status in self.system.jobs().items() if status not in _FINAL}
            assert not left, f"stuck: {left}"
            wrongs = self.system.wrongs()
            assert not wrongs, wrongs
        finally:
            self.system.close()

    def _waiting(self) -> list[str]:
        """Queues that are not empty."""
        return sorted(name for name, line in self.system.lines.items() if line.messages)

    def _work(self) -> list[str]:
        """Queues of work that could be set aside; reports never are a worker's death."""
        return [name for name in self._mortal() if name != "callbacks"]

    def _fitting(self, statuses: tuple[str, ...]) -> list[str]:
        """Jobs in one of these statuses."""
        return sorted(job for job, status in self.seen.items() if status in statuses)

    def _work_off(self, name: str) -> None:
        self._deliver(name, list(self.system.lines[name].messages), None, stays=False)

    def _mortal(self) -> list[str]:
        """Queues with a message that could be set aside."""
        return [name for name in self._waiting() if dead_line(name) in self.system.lines]

    def _rest(self) -> None:
        for _ in range(_ROUNDS):
            # Dead letters before the work of those who are still at it.
            for name, line in reversed(self.system.lines.items()):
                for _ in range(_ROUNDS):
                    if not line.messages:
                        break
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
