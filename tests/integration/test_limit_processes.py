"""One caller's limit, asked for by several processes of the operating system at once."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import pytest

from local.backends.ministack import MiniStack
from tests.support.limits import worst_window
from tests.support.repository import ROOT
from tests.support.state_table import dynamodb, new_table

pytestmark = [pytest.mark.integration, pytest.mark.slow]

RACERS = 8
# Asks until its time is up, and prints between which moments each admission was made.
PROGRAM = """
import json, sys, time

from indexmill.platform.limits.store import LimitStore
from indexmill.platform.aws.state_table import StoreClock
from indexmill.platform.time import SystemClock
from tests.support.limits import process, settings
from tests.support.state_table import client_at

endpoint, table, rate, seconds = sys.argv[1:]
own = StoreClock(SystemClock())
store = LimitStore(table, own, client_at(endpoint))
from indexmill.contracts.identity import CallerContext
window_s = 2 if seconds != "0" else 60
claim = {"requests": int(rate), "window_seconds": window_s}
ctx = CallerContext("racer", raw_claims={"rate_limits": claim})
here = process(store, SystemClock(), settings(), own)
print("ready", flush=True)
sys.stdin.readline()
until, admitted = time.monotonic() + float(seconds), []
left = 40
while time.monotonic() < until if seconds != "0" else left:
    left -= 1
    before = time.time()
    if here.admits(ctx):
        admitted.append((before, time.time()))
print(json.dumps(admitted), flush=True)
"""


def race(server: MiniStack, rate: int, seconds: float) -> list[tuple[float, float]]:
    """Return the admissions of all processes: the moments before and after each."""
    command = [sys.executable, "-c", PROGRAM, server.endpoint, new_table(dynamodb(server)), str(rate)]
    with ExitStack() as stack:
        racers = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, f"{seconds:g}"],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for _ in range(RACERS)
        ]
        pipes: list[tuple[Any, Any]] = [(each.stdin, each.stdout) for each in racers]
        assert [said.readline() for _, said in pipes] == ["ready\n"] * RACERS
        for told, _ in pipes:
            told.write("go\n")
            told.flush()
        return sorted(tuple(each) for _, said in pipes for each in json.loads(said.readline()))


@pytest.mark.shows("L1", "L7")
def test_eight_processes_admit_exactly_the_limit(ministack: MiniStack) -> None:
    assert len(race(ministack, 100, 0)) == 100


@pytest.mark.shows("L1")
def test_eight_processes_never_exceed_it_while_the_window_slides(ministack: MiniStack) -> None:
    admitted = race(ministack, 30, 7)
    # Each moment of an admission is known to within the request: a window between is as short as it can be.
    longest = max(end - begin for begin, end in admitted)
    assert worst_window([begin for begin, _ in admitted], 2 - longest) <= 30
    assert len(admitted) > 60
