"""Lambda's share of CPU by memory: a ratio of CPU to wall time in one run, whatever else the machine does.

A busy process that does not run is either stopped or waits for a core, and the kernel counts how long it
waits. So the tests hold on a busy machine too: who gets less than the share was hardly ever stopped.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from local.compute.cpu_share import CpuBudget, CpuWatch
from tests.integration.compute.harness import Lab, alive, answer, call, fault, noted_pid, until

MEMORY_MB = 512
SHARE = MEMORY_MB / 1769
SLACK = 0.25
HARDLY_STOPPED = 0.75
WHOLE = 0.9

BUSY = """
import os
import signal
import time

resumed = []
signal.signal(signal.SIGCONT, lambda *_: resumed.append(1))

def times():
    with open("/proc/self/schedstat") as file:
        ran, waited, _ = map(int, file.read().split())
    return ran / 1e9, waited / 1e9, time.monotonic()

def loop(seconds):
    ran, waited, began = times()
    while time.monotonic() < began + seconds:
        pass
    after = times()
    wall = after[2] - began
    return {"ran": (after[0] - ran) / wall, "wanted": (after[0] - ran + after[1] - waited) / wall}

def children(count, seconds):
    found = []
    for _ in range(count):
        ours, theirs = os.pipe()
        if not os.fork():
            mine = loop(seconds)
            os.write(theirs, b"%f %f" % (mine["ran"], mine["wanted"]))
            os._exit(0)
        found.append(ours)
    read = [[float(number) for number in os.read(pipe, 99).split()] for pipe in found]
    for _ in found:
        os.wait()
    return {"ran": sum(ran for ran, _ in read), "wanted": min(wanted for _, wanted in read)}

def note(path):
    with open(path, "w") as file:
        file.write(str(os.getpid()))

def ended(path):
    os.rename(path, path + ".ended")
    os._exit(0)

INIT = loop(0.3)

def handler(event, context):
    if event["do"] == "loop":
        return loop(event["s"]) | {"init": INIT, "resumed": len(resumed), "pid": os.getpid()}
    if event["do"] == "children":
        return children(event["count"], event["s"])
    if event["do"] == "little":
        ends = time.process_time() + event["s"]
        while time.process_time() < ends:
            pass
        return {"cpu": time.process_time(), "at": time.monotonic()}
    signal.signal(signal.SIGTERM, lambda *_: ended(event["note"]))
    note(event["note"])
    loop(60)
"""


def state(pid: int) -> str:
    """Return the process's state: R, S, T (stopped) …"""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] if pid else ""


def stops(pid: int) -> bool:
    """Return whether the process is soon stopped, without a turn of the event loop."""
    ends = time.monotonic() + 2
    while state(pid) != "T" and time.monotonic() < ends:
        pass
    return state(pid) == "T"


def check(found: dict[str, Any]) -> None:
    """Check that what ran is the share of 512 MB."""
    assert found["ran"] < SHARE * (1 + SLACK), found
    assert found["ran"] > SHARE * (1 - SLACK) or found["wanted"] > HARDLY_STOPPED, found


async def test_a_busy_function_gets_the_share_of_its_memory(lab: Lab) -> None:
    host = await lab.start(lab.function(BUSY, memory_mb=MEMORY_MB), cpu_share=True)
    found = await answer(host, {"do": "loop", "s": 1.2})
    check(found)
    assert found["init"]["wanted"] > WHOLE  # before the first invocation nothing is limited
    assert state(found["pid"]) != "T"
    assert (await answer(host, {"do": "loop", "s": 0.01}))["pid"] == found["pid"]


async def test_without_the_option_it_gets_a_whole_core(forking: Lab) -> None:
    host = await forking.start(forking.function(BUSY, memory_mb=MEMORY_MB))
    found = await answer(host, {"do": "loop", "s": 0.5})
    assert found["wanted"] > WHOLE
    assert found["resumed"] == 0


async def test_children_share_the_budget_of_their_function(forking: Lab) -> None:
    host = await forking.start(forking.function(BUSY, memory_mb=MEMORY_MB), cpu_share=True)
    check(await answer(host, {"do": "children", "count": 2, "s": 2.0}))


async def test_many_short_invocations_get_no_more_than_a_long_one(forking: Lab) -> None:
    host = await forking.start(forking.function(BUSY, memory_mb=MEMORY_MB), cpu_share=True)
    little = {"do": "little", "s": 0.004}
    found = [await answer(host, little) for _ in range(60)]
    cpu, wall = (found[-1][name] - found[0][name] for name in ("cpu", "at"))
    assert cpu > 0.2
    assert cpu / wall < SHARE * (1 + SLACK)


async def test_a_stopped_function_is_killed_at_its_timeout(lab: Lab) -> None:
    host = await lab.start(lab.function(BUSY, memory_mb=128, timeout_s=1), cpu_share=True)
    note = lab.folder / "pid"
    result = await call(host, {"do": "forever", "note": str(note)})
    assert fault(result)[0] == "Sandbox.Timedout"
    await until(lambda: not alive(noted_pid(note)))


async def test_a_stopped_function_gets_the_signal_to_end(lab: Lab) -> None:
    # With so little memory it is stopped for longer than it has to end.
    function = lab.function(BUSY, memory_mb=10, timeout_s=30)
    host = await lab.start(function, cpu_share=True, enforce_memory=False)
    note = lab.folder / "pid"
    running = asyncio.ensure_future(call(host, {"do": "forever", "note": str(note)}))
    await until(lambda: state(noted_pid(note)) == "T")
    pid = noted_pid(note)
    await host.stop()
    assert fault(await running)[0] == "Runtime.ExitError"
    assert not alive(pid)
    assert Path(f"{note}.ended").exists()


@pytest.mark.parametrize("memory_mb", [1769, 10_240])
async def test_much_memory_is_a_core_and_more(forking: Lab, memory_mb: int) -> None:
    host = await forking.start(forking.function(BUSY, memory_mb=memory_mb), cpu_share=True)
    assert (await answer(host, {"do": "loop", "s": 0.5}))["wanted"] > WHOLE


class Loop:
    """Process that leads its own group and never waits."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True)
        self.pid = self._process.pid

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


async def test_a_group_that_is_not_limited_any_more_runs_on() -> None:
    with closing(Loop()) as loop:
        watch, budget = CpuWatch(enforced=True), CpuBudget(10, loop)
        watch.add(budget)
        await until(lambda: state(loop.pid) == "T")
        watch.discard(budget)
        await until(lambda: state(loop.pid) == "R", limit_s=0.3)
        watch.add(budget)
        assert stops(loop.pid)  # at once: it still owes what it used
        watch.stop()
        await until(lambda: state(loop.pid) == "R", limit_s=0.3)
