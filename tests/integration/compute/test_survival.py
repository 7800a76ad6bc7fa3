"""Killed processes on every level: the host continues, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from local.compute.host import HostStopped, LambdaHost
from local.template.spec import InvokeResult
from tests.integration.compute.harness import (
    ECHO,
    Lab,
    alive,
    answer,
    call,
    fault,
    noted_pid,
    processes_in,
    until,
    value,
)

HOLD = """
import os
import signal

def handler(event, context):
    if event:
        with open(event + ".draft", "w") as note:
            note.write(str(os.getpid()))
        os.rename(event + ".draft", event)
        signal.pause()
    return os.getpid()
"""
REPOSITORY = Path(__file__).parents[3]


async def hold(lab: Lab, host: LambdaHost, name: str = "held") -> tuple[asyncio.Future[InvokeResult], int]:
    """Start an invocation that does not end by itself; return it and its process."""
    note = lab.folder / name
    running = asyncio.ensure_future(call(host, str(note)))
    await until(lambda: noted_pid(note))
    return running, noted_pid(note)


def has_other_supervisor(host: LambdaHost, pid: int) -> bool:
    return host.supervisor_pid != pid


async def test_a_process_killed_while_idle_is_replaced(lab: Lab) -> None:
    host = await lab.start(lab.function(HOLD))
    pid = await answer(host)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: host.stats()["fn"].environments == 0)
    assert await answer(host) != pid
    assert host.stats()["fn"].errors == 0


async def test_an_invocation_beside_the_kill_of_an_idle_process_ends_well_or_as_an_exit(lab: Lab) -> None:
    """The host may not know of the kill yet: an invocation that was sent then fails with AWS's error, and
    never hangs.
    """
    host = await lab.start(lab.function(HOLD))
    for _ in range(5):
        os.kill(await answer(host), signal.SIGKILL)
        result = await call(host)
        if result.function_error is not None:
            assert fault(result) == ("Runtime.ExitError", "Runtime exited with error: signal: killed")
        await answer(host)


async def test_a_process_killed_while_it_works_is_an_exit_error(lab: Lab) -> None:
    host = await lab.start(lab.function(HOLD))
    running, pid = await hold(lab, host)
    os.kill(pid, signal.SIGKILL)
    assert fault(await running) == ("Runtime.ExitError", "Runtime exited with error: signal: killed")
    assert await answer(host) != pid


async def test_a_killed_supervisor_is_replaced_and_takes_its_processes_with_it(lab: Lab) -> None:
    host = await lab.start(lab.function(HOLD))
    running, held = await hold(lab, host)
    idle = await answer(host)
    supervisor = host.supervisor_pid
    os.kill(supervisor, signal.SIGKILL)
    assert fault(await running) == ("Runtime.ExitError", "Runtime exited with error: signal: killed")
    assert await answer(host) not in (held, idle)
    await until(lambda: not any(map(alive, (held, idle, supervisor))))
    assert host.supervisor_starts == 2


async def test_a_supervisor_killed_again_and_again_is_always_replaced(lab: Lab) -> None:
    host = await lab.start(lab.function(HOLD))
    for number in range(3):
        await answer(host)
        supervisor = host.supervisor_pid
        os.kill(supervisor, signal.SIGKILL)
        await until(partial(has_other_supervisor, host, supervisor))
        assert value(await call(host)) > 0
        assert host.supervisor_starts == number + 2


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """Return a program that runs a host with a busy and an idle process, and never stops it."""
    file = tmp_path / "program.py"
    file.write_text(
        "import asyncio, sys\n"
        "from pathlib import Path\n"
        "from tests.integration.compute.harness import Lab, answer, call\n"
        f"CODE = {HOLD!r}\n"
        "async def main(folder, mode):\n"
        "    lab = Lab(Path(folder), mode)\n"
        "    host = await lab.start(lab.function(CODE, timeout_s=60))\n"
        "    held = asyncio.ensure_future(call(host, folder + '/held'))\n"
        "    while not Path(folder, 'held').exists():\n"
        "        await asyncio.sleep(0.01)\n"
        "    idle = await answer(host)\n"
        "    print(host.supervisor_pid, idle, Path(folder, 'held').read_text(), flush=True)\n"
        "    await held\n"
        "asyncio.run(main(*sys.argv[1:]))\n"
    )
    return file


@pytest.mark.parametrize("mode", ["fork", "exec"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_host_leaves_no_process(
    tmp_path: Path, script: Path, mode: str, number: signal.Signals
) -> None:
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "TMPDIR": str(tmp_path)}
    program = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path), mode], env=env, stdout=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    with program.stdout as output:
        try:
            pids = [int(word) for word in (await asyncio.to_thread(output.readline)).split()]
            assert len(pids) == 3
            assert all(map(alive, pids))
        finally:
            program.send_signal(number)
            program.wait(10)
    await until(lambda: not any(map(alive, pids)))
    assert processes_in(tmp_path / "code") == []


async def test_stopping_ends_the_idle_and_the_busy_and_removes_the_scratch_folders(lab: Lab) -> None:
    look = HOLD.replace("return os.getpid()", "return [os.getpid(), os.environ['HOME']]")
    host = await lab.start(lab.function(look))
    running, held = await hold(lab, host)
    idle, home = await answer(host)
    Path(home, "left").mkdir()
    Path(home, "left", "file").write_text("something")
    supervisor = host.supervisor_pid
    await host.stop()
    assert fault(await running)[0] == "Runtime.ExitError"
    await until(lambda: not any(map(alive, (held, idle, supervisor))))
    assert not Path(home).parent.exists()
    assert (lab.folder / "logs" / "fn.jsonl").exists()


async def test_waiting_invocations_fail_when_the_host_stops_and_later_ones_too(forking: Lab) -> None:
    host = await forking.start(forking.function("import signal\nsignal.pause()\n"))
    waiting = asyncio.ensure_future(call(host))
    await until(lambda: host.stats()["fn"].waiting)
    await host.stop()
    with pytest.raises(HostStopped):
        await waiting
    with pytest.raises(HostStopped):
        await call(host)


async def test_a_process_that_ignores_the_polite_signal_is_killed(lab: Lab) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLD
    host = await lab.start(lab.function(stubborn))
    pid = await answer(host)
    await host.stop()
    assert not alive(pid)


async def test_a_host_stops_twice_and_leaves_other_hosts_running(forking: Lab) -> None:
    first = await forking.start(forking.function(ECHO))
    second = await forking.start(forking.function(ECHO))
    await answer(first)
    pid = (await answer(second))["pid"]
    await first.stop()
    await first.stop()
    assert await answer(second, 2) == {"event": 2, "pid": pid}
