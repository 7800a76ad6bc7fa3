"""Processes per function, and invocations that wait or are throttled."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from local.compute.host import LambdaHost, PoolLimits
from local.template.spec import InvokeResult, Throttled
from tests.integration.compute.harness import Lab, alive, answer, call, fault, until, value

MEET = """
import os
import time

def handler(event, context):
    if event and "meet" in event:
        open(os.path.join(event["meet"], context.aws_request_id), "w").close()
        while len(os.listdir(event["meet"])) < event["number"]:
            time.sleep(0.005)
    if event and "hold" in event:
        while not os.path.exists(event["hold"]):
            time.sleep(0.005)
    return os.getpid()
"""


class Gate:
    """Blocks invocations until it is opened."""

    def __init__(self, lab: Lab, host: LambdaHost) -> None:
        self._file: Path = lab.folder / "gate"
        self._host = host
        self.blocked: list[asyncio.Future[InvokeResult]] = []

    async def block(self, number: int, waiting: int = 0) -> None:
        """Start `number` more invocations, and wait until all but `waiting` run."""
        event = {"hold": str(self._file)}
        self.blocked += [asyncio.ensure_future(call(self._host, event)) for _ in range(number)]
        await until(lambda: self._busy_and_waiting() == (len(self.blocked) - waiting, waiting))

    async def open(self) -> list[Any]:
        """Unblock them; return their results."""
        self._file.touch()
        return [value(result) for result in await asyncio.gather(*self.blocked)]

    def _busy_and_waiting(self) -> tuple[int, int]:
        stats = self._host.stats()["fn"]
        return stats.busy, stats.waiting


async def test_invocations_at_once_run_in_parallel_each_in_its_own_process(lab: Lab) -> None:
    host = await lab.start(lab.function(MEET))
    meeting = lab.folder / "meeting"
    meeting.mkdir()
    event = {"meet": str(meeting), "number": 4}
    results = await asyncio.gather(*(call(host, event) for _ in range(4)))
    assert len({value(result) for result in results}) == 4


async def test_invocations_one_after_the_other_share_a_process(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET))
    assert len({await answer(host) for _ in range(10)}) == 1
    assert host.stats()["fn"].cold_starts == 1


async def test_many_invocations_at_once_all_get_their_own_answer(forking: Lab) -> None:
    code = "def handler(event, context):\n    return [event, context.aws_request_id]\n"
    host = await forking.start(forking.function(code), limits=PoolLimits(environments=3, busy_wait_s=0.0))
    results = await asyncio.gather(*(call(host, number) for number in range(300)))
    assert [value(result) for result in results] == [
        [number, result.request_id] for number, result in enumerate(results)
    ]
    stats = host.stats()["fn"]
    assert (stats.invocations, stats.errors, stats.environments) == (300, 0, 3)


@pytest.mark.parametrize(
    ("idle_cpu", "busy_wait_s", "environments"),
    [(0.0, 600.0, 1), (0.0, 0.01, 2), (0.5, 600.0, 2), (None, 0.01, 2)],
)
async def test_one_more_environment_starts_while_cpu_is_idle_or_after_a_wait(
    forking: Lab, idle_cpu: float | None, busy_wait_s: float, environments: int
) -> None:
    limits = PoolLimits(environments=2, busy_wait_s=busy_wait_s)
    host = await forking.start(forking.function(MEET), limits=limits, idle_cpu=lambda: idle_cpu)
    gate = Gate(forking, host)
    await gate.block(1)
    await gate.block(1, waiting=2 - environments)
    assert len(set(await gate.open())) == environments


async def test_functions_do_not_share_processes_or_wait_for_each_other(forking: Lab) -> None:
    limits = PoolLimits(environments=1)
    host = await forking.start(forking.function(MEET), forking.function(MEET, "other"), limits=limits)
    gate = Gate(forking, host)
    await gate.block(1)
    other = await answer(host, function="other")
    assert other not in await gate.open()


async def test_invocations_above_reserved_concurrency_are_throttled(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET, reserved_concurrency=2))
    gate = Gate(forking, host)
    await gate.block(2)
    for _ in range(3):
        with pytest.raises(Throttled):
            await call(host)
    assert len(set(await gate.open())) == 2
    assert host.stats()["fn"].throttles == 3
    await answer(host)


async def test_a_failed_invocation_gives_its_reserved_place_back(forking: Lab) -> None:
    code = "import os\n\ndef handler(event, context):\n    os._exit(1) if event else None\n"
    host = await forking.start(forking.function(code, reserved_concurrency=1))
    for _ in range(3):
        assert fault(await call(host, "end"))[0] == "Runtime.ExitError"
        assert await answer(host) is None


async def test_a_reserved_concurrency_of_none_at_all_switches_a_function_off(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET, reserved_concurrency=0))
    with pytest.raises(Throttled):
        await call(host)
    assert host.stats()["fn"].cold_starts == 0


async def test_beyond_the_hosts_own_limit_some_wait_and_the_rest_is_throttled(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET), limits=PoolLimits(environments=2, waiting=3))
    gate = Gate(forking, host)
    await gate.block(2)
    await gate.block(3, waiting=3)
    with pytest.raises(Throttled):
        await call(host)
    assert len(set(await gate.open())) == 2


async def test_what_waits_can_be_withdrawn(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET), limits=PoolLimits(environments=1))
    gate = Gate(forking, host)
    await gate.block(2, waiting=1)
    gate.blocked.pop().cancel()
    await until(lambda: host.stats()["fn"].waiting == 0)
    await gate.open()
    await answer(host)
    assert host.stats()["fn"].invocations == 2


async def test_the_warmest_process_works_and_the_others_end_after_a_while(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET), limits=PoolLimits(idle_s=0.3))
    gate = Gate(forking, host)
    await gate.block(3)
    pids = await gate.open()
    kept = await answer(host)
    assert kept in pids
    for _ in range(5):
        assert await answer(host) == kept
    await until(lambda: host.stats()["fn"].environments == 1)
    await until(lambda: [pid for pid in pids if alive(pid)] == [kept])
    assert await answer(host) == kept


async def test_processes_are_idle_while_nothing_runs(lab: Lab) -> None:
    host = await lab.start(lab.function(MEET))
    await answer(host)
    before = host.stats()["fn"].cpu_s
    await asyncio.sleep(0.3)
    assert host.stats()["fn"].cpu_s - before <= 0.02


async def test_functions_can_be_added_to_a_running_host(forking: Lab) -> None:
    host = await forking.start(forking.function(MEET))
    host.add([forking.function(MEET, "late")])
    assert json.dumps(await answer(host, function="LateFunction"))
    assert set(host.stats()) == {"fn", "late"}
