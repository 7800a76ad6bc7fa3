"""One breaker of several processes of the operating system, which have nothing in common but a table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from local.backends.ministack import MiniStack
from tests.support.repository import ROOT
from tests.support.state_table import dynamodb, new_table

pytestmark = pytest.mark.integration

RACERS = 4
# Executes the commands that it reads, a line each, and prints the outcome. A command advances its clock.
PROGRAM = """
import sys

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.breakers import BreakerStates
from indexmill.contracts.errors import BreakerOpen
from indexmill.platform.breakers import EMBEDDING
from indexmill.platform.breakers import Breaker
from tests.twins.clock import FrozenClock
from tests.support.state_table import client_at

CODE = ErrorCode.EMBEDDING_UNAVAILABLE
endpoint, table = sys.argv[1:]
clock = FrozenClock()
breaker = Breaker(EMBEDDING, CODE, [CODE], BreakerStates(table, clock, client_at(endpoint)), clock)


def say(what):
    print(what, flush=True)


def fail():
    raise TransientError(CODE, "away")


def hold():
    say("holds")
    sys.stdin.readline()


def done(word):
    try:
        breaker.call({"ok": lambda: None, "fail": fail, "hold": hold}[word])
    except BreakerOpen as refused:
        return f"open {refused.wait_s:g}"
    except TransientError:
        return "failed"
    return "ok"


say("ready")
for line in iter(sys.stdin.readline, ""):
    word = line.strip()
    if word.isdigit():
        clock.tick(int(word))
    else:
        say(done(word))
"""


class Process:
    """One of them."""

    def __init__(self, endpoint: str, table: str) -> None:
        self.running = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, endpoint, table],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, word: object) -> None:
        assert self.running.stdin is not None
        self.running.stdin.write(f"{word}\n")
        self.running.stdin.flush()

    def answer(self) -> str:
        assert self.running.stdout is not None
        return self.running.stdout.readline().strip()

    def call(self, how: str) -> str:
        self.send(how)
        return self.answer()


@pytest.fixture
def processes(ministack: MiniStack) -> Iterator[list[Process]]:
    """Yield processes that have begun, and know of no failure."""
    table = new_table(dynamodb(ministack))
    started = [Process(ministack.endpoint, table) for _ in range(RACERS)]
    try:
        assert [each.answer() for each in started] == ["ready"] * RACERS
        yield started
    finally:
        for each in started:
            each.running.kill()
            each.running.communicate()


def at_once(processes: list[Process], how: str) -> list[str]:
    """Return the answers to one command sent to all at once, each process's first one."""
    for each in processes:
        each.send(how)
    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(Process.answer, processes))


def open_it(process: Process) -> None:
    assert [process.call("fail") for _ in range(3)] == ["failed", "failed", "open 30"]


@pytest.mark.fault("F53")
def test_what_one_process_opens_another_sees(processes: list[Process]) -> None:
    first, trusting, *others = processes
    assert trusting.call("ok") == "ok"
    open_it(first)
    assert [each.call("ok") for each in others] == ["open 30"] * len(others)
    assert trusting.call("fail") == "open 30"
    assert first.call("ok") == "open 30"


@pytest.mark.fault("F53")
def test_failures_of_all_processes_are_one_row(processes: list[Process]) -> None:
    answers = [each.call("fail") for each in processes]
    assert answers == ["failed", "failed", "open 30", "open 30"]


@pytest.mark.fault("F53")
def test_of_all_that_would_probe_at_once_one_does(processes: list[Process]) -> None:
    open_it(processes[0])
    for _ in range(3):
        for each in processes:
            # By then no process relies any more on the state it read last.
            each.send(61)
        answers = at_once(processes, "hold")
        assert sorted(answers) == ["holds", *["open 5"] * (RACERS - 1)]
        (probing,) = [each for each, answer in zip(processes, answers, strict=True) if answer == "holds"]
        assert probing.call("and goes on") == "ok"
        assert [each.call("ok") for each in processes] == ["ok"] * RACERS
        open_it(probing)


@pytest.mark.fault("F53")
def test_the_turn_of_a_process_that_died_probing_is_anothers(processes: list[Process]) -> None:
    died, *others = processes
    open_it(died)
    for each in processes:
        each.send(30)
    assert died.call("hold") == "holds"
    died.running.kill()
    assert at_once(others, "ok") == ["open 5"] * len(others)
    for each in others:
        each.send(60)
    assert sorted(at_once(others, "hold")) == ["holds", "open 5", "open 5"]
