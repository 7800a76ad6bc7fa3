"""Every write of every way through the pipeline, with the process killed before and after it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from functools import partial

import pytest

from local.faults.invariants.report import violations, wait_until_idle
from local.faults.rules import Kind
from tests.faults import enumeration
from tests.faults.arena import VISIBILITY_S, Arena
from tests.faults.enumeration import KINDS, POLLER_KINDS, QUICK, Run, Shot
from tests.faults.scenarios import SCENARIOS, Scenario

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]

EVERY = frozenset((*KINDS, *POLLER_KINDS))
NEIGHBOURS: list[tuple[Shot, ...]] = [()] * 3
"""Jobs without a fault of their own, for each one with a fault."""
named = pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
kill = pytest.mark.parametrize(
    ("scenario", "kinds"),
    [
        *(pytest.param(each, QUICK, id=each.name) for each in SCENARIOS if not each.slow),
        *(
            pytest.param(each, EVERY, id=f"{each.name}-every kind", marks=pytest.mark.long)
            for each in SCENARIOS
        ),
    ],
)


@pytest.fixture(scope="module")
def calm(arena: Arena) -> Arena:
    """Return the stack with all that happens only once behind it."""
    job = arena.submit(arena.page(arena.token("warm")))
    assert wait_until_idle(arena.cloud, 30).reached, job
    return arena


@pytest.fixture
def rough(calm: Arena) -> Iterator[Arena]:
    """Yield the stack with short visibility timeouts and batches of one: a kill affects one job only."""
    calm.cloud.set_visibility(VISIBILITY_S)
    calm.cloud.set_batch_size(1)
    yield calm
    calm.control.arm()
    calm.cloud.set_batch_size(10)
    calm.cloud.set_visibility(360)


@named
def test_a_clean_run_makes_exactly_the_writes_on_the_list(calm: Arena, scenario: Scenario) -> None:
    found = enumeration.traced(calm, scenario)
    if os.environ.get("WRITE_POINTS"):
        path = enumeration.POINTS / f"{scenario.name}.txt"
        path.write_text("".join(f"{line}\n" for line in found), encoding="utf-8")
    assert enumeration.steady(found) == enumeration.steady(enumeration.committed(scenario))


@pytest.mark.fault("F1", "F2", "F4", "F6", "F7", "F9", "F10", "F24", "F62")
@kill
def test_a_kill_at_any_write_loses_nothing(
    rough: Arena, scenario: Scenario, kinds: frozenset[Kind], capsys: pytest.CaptureFixture[str]
) -> None:
    known = {shot for each in SCENARIOS if each.name == scenario.beyond for shot in _shots(each)}
    every = [(shot,) for shot in _shots(scenario) if shot not in known and shot.kind in kinds]
    told_by_token = [group for group in every if not _is_alone(scenario, group[0])]
    others = [group for group in every if _is_alone(scenario, group[0])]
    began = time.monotonic()
    runs = [
        *enumeration.insisted(partial(enumeration.marked, rough, scenario), told_by_token),
        *enumeration.one_by_one(rough, scenario, others),
    ]
    _judge(rough, scenario, runs, time.monotonic() - began, capsys)


@pytest.mark.parametrize("count", [6, pytest.param(24, marks=pytest.mark.long)])
def test_two_kills_on_one_job_lose_nothing(
    rough: Arena, count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = SCENARIOS[0]
    choice = random.Random(18)
    singles = [
        shot
        for shot in _shots(scenario)
        if not _is_alone(scenario, shot) and shot.kind != "execute_then_error"
    ]
    pairs = [tuple(choice.sample(singles, 2)) for _ in range(count)]
    pairs = [pair for pair in pairs if pair[0].place != pair[1].place]
    began = time.monotonic()
    runs = enumeration.insisted(partial(enumeration.marked, rough, scenario), pairs)
    _judge(rough, scenario, runs, time.monotonic() - began, capsys)


@pytest.mark.long
@pytest.mark.parametrize("name", ["small", "large"])
def test_a_kill_that_takes_neighbours_along_loses_none(
    rough: Arena, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (scenario,) = (each for each in SCENARIOS if each.name == name)
    rough.cloud.set_batch_size(10)
    shots = [
        shot for shot in enumeration.shots(enumeration.committed(scenario)) if not _is_alone(scenario, shot)
    ]
    every = [group for shot in random.Random(23).sample(shots, 40) for group in ((shot,), *NEIGHBOURS)]
    began = time.monotonic()
    runs = list(enumeration.marked(rough, scenario, every))
    # A batch shares its writes: not every job comes to the one that is its own.
    _judge(rough, scenario, runs, time.monotonic() - began, capsys, all_reached=False)


def _shots(scenario: Scenario) -> list[Shot]:
    return list(enumeration.shots(enumeration.committed(scenario)))


def _is_alone(scenario: Scenario, shot: Shot) -> bool:
    return scenario.alone or shot.place.startswith("poller/")


def _judge(
    arena: Arena,
    scenario: Scenario,
    runs: list[Run],
    seconds: float,
    capsys: pytest.CaptureFixture[str],
    *,
    all_reached: bool = True,
) -> None:
    """Print what was done, and fail with all that went wrong at once."""
    wait_until_idle(arena.cloud, 20)
    broken = violations(arena.cloud, [job for run in runs for job in run.jobs])
    where = {job.job_id: " and ".join(map(str, run.shots)) for run in runs for job in run.jobs}
    missed = [" and ".join(map(str, shots)) for shots in enumeration.never_fired(runs)]
    again = len(runs) - len({run.shots for run in runs}) if all_reached else 0
    points = len({(shot.place, shot.nth) for run in runs for shot in run.shots})
    with capsys.disabled():
        print(
            f"\n  {scenario.name}: {points} points, {len(runs)} runs ({again} once more) in {seconds:.0f} s,"
            f" {len(missed)} not reached, {len(broken)} promises broken"
        )
    assert [f"{each} [{where.get(each.subject, 'another run')}]" for each in broken] == []
    assert missed == [] or not all_reached
