from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from local.backends.process import Backend, BackendFailed, answers, free_port, stand_in
from tests.integration.backends.conftest import until

Make = Callable[..., Backend]

SLEEP = "import signal; signal.pause()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf'); signal.pause()"
PARENT = """
    import subprocess, sys, signal
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    print(child.pid)
    signal.pause()
"""


@pytest_asyncio.fixture
async def make(tmp_path: Path) -> AsyncIterator[Make]:
    """Return a backend that runs Python source; stopped after the test."""
    async with AsyncExitStack() as stack:

        def build(source: str, **options: Any) -> Backend:
            argv = [sys.executable, "-c", textwrap.dedent(source)]
            backend = Backend("thing", argv, log_path=tmp_path / "logs" / "thing.log", **options)
            stack.push_async_callback(backend.stop)
            return backend

        yield build


def running(pid: int) -> bool:
    """Return whether a process lives; a zombie does not."""
    shown = subprocess.run(["ps", "-p", str(pid), "-o", "stat="], capture_output=True, text=True, check=False)
    return shown.stdout.strip() != "" and not shown.stdout.strip().startswith("Z")


def logged(backend: Backend) -> Callable[[], bool]:
    return lambda: backend.log_path.exists() and backend.log_path.read_text().endswith("\n")


async def test_a_backend_starts_once_and_stops_by_its_own_id(make: Make) -> None:
    exits: list[int] = []
    backend = make(SLEEP, on_exit=exits.append)
    assert backend.pid is None
    await backend.start()
    pid = backend.pid
    await backend.start()
    assert backend.pid == pid
    assert pid is not None
    await backend.stop()
    await backend.stop()
    assert (backend.pid, backend.restarts, exits) == (None, 0, [])
    assert not running(pid)


async def test_a_restart_is_a_new_process_and_counted(make: Make) -> None:
    backend = make(SLEEP)
    await backend.start()
    first = backend.pid
    await backend.restart()
    assert backend.pid not in (None, first)
    assert backend.restarts == 1


async def test_an_unrequested_end_is_reported(make: Make) -> None:
    exits: list[int] = []
    backend = make(SLEEP, on_exit=exits.append)
    await backend.start()
    assert backend.pid is not None
    os.kill(backend.pid, signal.SIGKILL)
    assert await asyncio.wait_for(backend.wait(), 5) == -signal.SIGKILL
    await until(lambda: exits == [-signal.SIGKILL])
    await backend.start()
    assert backend.pid is not None
    assert backend.restarts == 1


async def test_a_process_that_does_not_listen_is_killed(make: Make) -> None:
    backend = make(DEAF)
    await backend.start()
    await until(logged(backend))
    await asyncio.wait_for(backend.stop(timeout_s=0.1), 5)
    assert await backend.wait() == -signal.SIGKILL


async def test_a_process_takes_its_children_with_it(make: Make) -> None:
    backend = make(PARENT)
    await backend.start()
    await until(logged(backend))
    child = int(backend.log_path.read_text())
    assert running(child)
    await backend.stop()
    await until(lambda: not running(child))


async def test_a_process_that_ends_at_once_shows_the_end_of_its_log(make: Make) -> None:
    exits: list[int] = []
    backend = make("raise SystemExit('no such setting')", ready=lambda: asyncio.sleep(0, False))
    with pytest.raises(BackendFailed, match=r"(?s)thing did not get ready \(exit 1\).*no such setting"):
        await backend.start()
    assert backend.pid is None
    assert exits == []


async def test_a_process_that_does_not_get_ready_is_stopped(make: Make) -> None:
    backend = make(SLEEP, ready=lambda: asyncio.sleep(0, False))
    with pytest.raises(BackendFailed, match="did not get ready"):
        await backend.start(timeout_s=0.2)
    assert backend.pid is None


async def test_only_this_starts_log_is_shown(make: Make) -> None:
    backend = make("raise SystemExit('again')", ready=lambda: asyncio.sleep(0, False))
    backend.log_path.parent.mkdir(parents=True)
    backend.log_path.write_text("earlier trouble\n")
    with pytest.raises(BackendFailed) as failed:
        await backend.start()
    assert "earlier trouble" not in str(failed.value)
    assert backend.log_path.read_text() == "earlier trouble\nagain\n"


async def test_variables_come_on_top_of_ours(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_US", "ours")
    source = "import os; print(os.environ['FROM_US'], os.environ['ADDED'])"
    backend = make(source, env={"ADDED": "added"})
    await backend.start()
    assert await asyncio.wait_for(backend.wait(), 5) == 0
    assert backend.log_path.read_text() == "ours added\n"


async def test_waiting_for_what_was_never_started_fails_and_stopping_it_does_nothing(make: Make) -> None:
    backend = make(SLEEP)
    await backend.stop()
    with pytest.raises(BackendFailed, match="never started"):
        await backend.wait()


async def test_ready_means_that_the_url_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # independent of the working folder
    port = free_port()
    url = f"http://127.0.0.1:{port}/health"
    assert not await answers(url)
    backend = stand_in("site", port, log_path=tmp_path / "site.log")
    await backend.start()
    try:
        assert await answers(url)
        assert not await answers(f"http://127.0.0.1:{port}/lost.html")
    finally:
        await backend.stop()
    assert not await answers(url)
    assert await backend.wait() == 0, "SIGTERM is an orderly end"


async def test_an_address_in_use_is_reported(tmp_path: Path) -> None:
    port = free_port()
    first = stand_in("site", port, log_path=tmp_path / "first.log")
    await first.start()
    try:
        taken = Backend("second", first._argv, env=first._env, log_path=tmp_path / "second.log")
        await taken.start()
        assert await asyncio.wait_for(taken.wait(), 10) != 0
        assert "address already in use" in taken.log_path.read_text().lower()
    finally:
        await first.stop()


async def test_a_stand_in_ends_with_its_parent(tmp_path: Path) -> None:
    port = free_port()
    source = f"""
        import asyncio, pathlib, os
        from local.backends.process import stand_in
        async def main():
            backend = stand_in("site", {port}, log_path=pathlib.Path({str(tmp_path / "log")!r}))
            await backend.start()
            print(backend.pid, flush=True)
            os._exit(0)
        asyncio.run(main())
    """
    root = Path(__file__).parents[3]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
    )
    pid = int(done.stdout)
    await until(lambda: not running(pid))
    assert not await answers(f"http://127.0.0.1:{port}/health")


def test_a_free_port_is_none_that_a_connection_could_take() -> None:
    """Between the choice of a port and its server's start others connect: theirs come from the range."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = {free_port() for _ in range(50)}
    assert max(ports) < first
    assert len(ports) > 25, "drawn, so that two who look at once seldom choose one"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert free_port(taken.getsockname()[1]) < first
