"""Find the writes of a scenario, and run it again for each of them with a fault there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from local.faults.invariants.report import wait_until_idle
from local.faults.invariants.violation import Accepted
from local.faults.rules import Kind, Rule
from tests.faults.arena import Arena
from tests.faults.scenarios import Scenario
from tests.support.repository import ROOT
from tests.support.stack import eventually

POINTS: Final = ROOT / "tests" / "faults" / "points"
KINDS: Final[tuple[Kind, ...]] = ("kill_before", "kill_after", "execute_then_error")
POLLER_KINDS: Final[tuple[Kind, ...]] = ("error", "execute_then_error")
"""The event sources are not ours: they cannot be killed, their calls can fail."""
QUICK: Final = frozenset[Kind](("kill_after", "error"))
"""One kind for each place: a process that is killed after a write is killed before its next one."""
_AT_ONCE: Final = 48
_WAVE_S: Final = 180.0
"""How long a wave of jobs may take on the slowest machine; what is stuck then is named in the end."""
_AT_WORK_S: Final = 3.0
"""How long a function may take to send what it committed before the sweeper does: a call, a cold start. Less
than the visibility timeout, so that messages of killed processes are not waited for."""
_ALONE_S: Final = 120.0
"""How long a job alone may take: a breaker that it opened stays open for half a minute."""
_UNHURRIED_S: Final = 360
"""A visibility with which no message of a clean run comes twice."""
_AGAIN: Final = 3
"""How often a fault that did not happen is tried again before it counts as one that cannot."""
_GIVEN_UP_AFTER: Final = 3
"""Tries of the event sources' deletes; as many must fail for a message to come back."""


@dataclass(frozen=True, slots=True)
class Shot:
    """One run: the place, which time it is passed, and what happens there."""

    place: str
    nth: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.place}:{self.kind}#{self.nth}"


@dataclass(frozen=True, slots=True)
class Run:
    """Outcome of one scenario's run."""

    shots: tuple[Shot, ...]
    jobs: tuple[Accepted, ...]
    """The one that it is about, and the one that was made of it."""
    fired: bool


def committed(scenario: Scenario) -> list[str]:
    """Return the list of the scenario's writes that is kept in the repository."""
    path = POINTS / f"{scenario.name}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


_ONCE_PER_PROCESS = frozenset(("EmbeddingWorker/postgres.execute@insert-corpora",))
"""What only a process does that has not seen the corpus yet: chance decides which one gets the job."""


_SENDERS: Final = frozenset(("OrchestratorApi", "OrchestratorResults"))
"""Who sends what the sweeper sends otherwise."""


def traced(arena: Arena, scenario: Scenario) -> list[str]:
    """Run the scenario once with nothing broken and return its writes, as the kept list has them."""
    control, token = arena.control, arena.token("clean")
    arena.cloud.set_visibility(_UNHURRIED_S)
    arena.cloud.set_batch_size(10)
    wait_until_idle(arena.cloud, 30)
    _sweep(arena)  # incidents of an earlier scenario are recorded before this one's writes are counted
    before = len(control.traced())
    # The sweeper's event names no job: its runs are known by their ids.
    control.arm(scenario.setup(token), trace=True, only="" if scenario.sweeps else token)
    job = scenario.begin(arena, token)
    requests = [_sweep(arena) for _ in range(scenario.sweeps)]
    assert _settled(arena, scenario), f"the clean job of {scenario.name} does not end"
    if scenario.then is not None:
        scenario.then(arena, token, job)
        assert _settled(arena, scenario), f"the clean job of {scenario.name} does not end once more"
    control.arm()
    counts = Counter(
        call["place"]
        for call in control.traced()[before:]
        if call["place"].partition("/")[0] in scenario.functions
        and call["place"] not in _ONCE_PER_PROCESS
        and (not requests or call["request"] in requests)
    )
    return sorted(_line(place, count) for place, count in counts.items())


def _settled(arena: Arena, scenario: Scenario) -> bool:
    # A sweeper that believes two minutes passed would do the writes of slow senders in their place.
    alone = _SENDERS.isdisjoint(scenario.functions)
    return wait_until_idle(arena.cloud, 120, sweep=alone).reached


def _sweep(arena: Arena) -> str:
    arena.cloud.pass_time()
    return arena.cloud.sweep()


def _line(place: str, count: int) -> str:
    # The event sources put deletes together by time: how many calls there are is chance.
    return place if count == 1 or place.startswith("poller/") else f"{place} x{count}"


def steady(lines: Sequence[str]) -> list[str]:
    """Return lines without a count that is chance: a process that saw no failure has no recovery to note."""
    return [line.partition(" x")[0] if "@breaker" in line else line for line in lines]


def shots(lines: Sequence[str]) -> Iterator[Shot]:
    """Yield every run that a list of writes asks for."""
    for line in lines:
        place, _, count = line.partition(" x")
        for nth in range(1, int(count or 1) + 1):
            for kind in POLLER_KINDS if place.startswith("poller/") else KINDS:
                yield Shot(place, nth, kind)


def marked(arena: Arena, scenario: Scenario, groups: Sequence[tuple[Shot, ...]]) -> Iterator[Run]:
    """Run jobs side by side, each with faults of its own that only its own messages trip."""
    for start in range(0, len(groups), _AT_ONCE):
        wave = groups[start : start + _AT_ONCE]
        named = [(arena.token(f"{scenario.name.replace('_', '')}"), group) for group in wave]
        rules = [
            rule for token, group in named for rule in (*_rules(group, token, token), *scenario.setup(token))
        ]
        arena.control.arm(rules)
        jobs = [scenario.begin(arena, token) for token, _ in named]
        wait_until_idle(arena.cloud, _WAVE_S, lease_s=_AT_WORK_S)
        later: list[Accepted | None] = [None] * len(jobs)
        if scenario.then is not None:
            later = [scenario.then(arena, token, job) for (token, _), job in zip(named, jobs, strict=True)]
            wait_until_idle(arena.cloud, _WAVE_S, lease_s=_AT_WORK_S)
        fired = Counter(each["rule"] for each in arena.control.fired())
        for (token, group), *both in zip(named, jobs, later, strict=True):
            names = [rule.name for rule in _rules(group, token, token)]
            made = tuple(job for job in both if job is not None)
            yield Run(group, made, all(fired[name] for name in names))


def insisted(
    befall: Callable[[Sequence[tuple[Shot, ...]]], Iterator[Run]], groups: Sequence[tuple[Shot, ...]]
) -> list[Run]:
    """Run all of them, and again those whose fault was kept away by chance; every run is returned.

    The sweeper, which is hastened, may do a write that a slow machine's function was about to do; and a
    receive that waited since batches were larger may bring jobs together, which then share a write.
    """
    runs = latest = list(befall(groups))
    for _ in range(_AGAIN):
        missed = [run.shots for run in latest if not run.fired]
        if not missed:
            break
        latest = list(befall(missed))
        runs = [*runs, *latest]
    return runs


def never_fired(runs: Sequence[Run]) -> list[tuple[Shot, ...]]:
    """Return what was asked for and did not happen in any run."""
    reached = {run.shots for run in runs if run.fired}
    return sorted({run.shots for run in runs} - reached, key=str)


def one_by_one(arena: Arena, scenario: Scenario, groups: Sequence[tuple[Shot, ...]]) -> Iterator[Run]:
    """Run jobs one after the other, for faults in what belongs to no job alone."""
    for group in groups:
        yield _alone(arena, scenario, group)


def _alone(arena: Arena, scenario: Scenario, group: tuple[Shot, ...]) -> Run:
    token = arena.token(scenario.name.replace("_", ""))
    rules = _rules(group, token, "")
    arena.control.arm([*rules, *scenario.setup(token)])
    job = scenario.begin(arena, token)
    for _ in range(scenario.sweeps):
        _sweep(arena)
    eventually(lambda: _fired(arena, rules), f"{group[0]} happens", _ALONE_S)
    arena.end_with_sweeps([job], _ALONE_S)
    return Run(group, (job,), _fired(arena, rules))


def _fired(arena: Arena, rules: Sequence[Rule]) -> bool:
    fired = {each["rule"] for each in arena.control.fired()}
    return all(rule.name in fired for rule in rules)


def _rules(group: tuple[Shot, ...], token: str, mark: str) -> list[Rule]:
    return [
        Rule(
            shot.place,
            shot.kind,
            shot.nth,
            times=_GIVEN_UP_AFTER if shot.place.startswith("poller/") and shot.kind == "error" else 1,
            mark=mark,
            name=f"{token}-{number}",
        )
        for number, shot in enumerate(group)
    ]
