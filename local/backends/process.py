"""Child process beside the functions: start, wait until ready, stop by its own process id."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

PARENT_ENV = "INDEXMILL_EXIT_WITH_PARENT"
"""Set for every backend: the project's stand-ins then exit when their parent does."""

_POLL_S = 0.02
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000
_USUAL_FIRST = 32_768
_PORTS = 100
"""Ports that are tried."""
_REPOSITORY = Path(__file__).resolve().parents[2]


class BackendFailed(RuntimeError):
    """Raised when a backend ended, or was not ready in time; the message has the end of its log."""


def free_port(preferred: int = 0) -> int:
    """Return a free loopback port: `preferred` when that is free.

    Others are below those that the system gives to connections, which might take one before its server does.
    """
    drawn = random.sample(range(_LOWEST_PORT, _first_of_connections()), _PORTS)
    for port in [preferred, *drawn] if preferred else drawn:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise BackendFailed("no port is free")


def _first_of_connections() -> int:
    """Return the first port that the system gives to connections."""
    try:
        return max(_LOWEST_PORT + _PORTS, int(_RANGE.read_text().split()[0]))
    except (OSError, ValueError, IndexError):
        return _USUAL_FIRST


def stand_in_argv(name: str, port: int, *options: str) -> list[str]:
    """Return the command of a stand-in, for example `stand_in_argv("membership", 8081, "--phase", "4")`."""
    return [sys.executable, "-m", f"local.backends.{name}", "--port", str(port), *options]


class Backend:
    """Process with a log file and a readiness check.

    Args:
        name: For messages.
        argv: Program and arguments.
        env: Variables on top of our own environment.
        log_path: Its output is appended here.
        ready: A URL that answers 2xx once the process serves, or an async check; None means at once.
        on_exit: Called with the exit status when the process ends without `stop`.
    """

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        *,
        log_path: Path,
        env: Mapping[str, str] | None = None,
        ready: str | Callable[[], Awaitable[bool]] | None = None,
        on_exit: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.log_path = log_path
        self._argv = list(argv)
        self._env = {**os.environ, "PYTHONUNBUFFERED": "1", PARENT_ENV: "1", **(env or {})}
        self._ready = ready
        self._on_exit = on_exit
        self._process: asyncio.subprocess.Process | None = None
        self._watcher: asyncio.Task[int] | None = None
        self._stopping = False
        self._log_start = 0

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def start(self, timeout_s: float = 20.0) -> None:
        """Start the process and wait until it is ready; no effect when it runs.

        Raises BackendFailed when it ends first or takes longer than `timeout_s`.
        """
        if self.pid is not None:
            return
        self.restarts += self._process is not None
        self._stopping = False
        self._process = await self._spawn()
        self._watcher = asyncio.create_task(self._watch(self._process), name=f"watch-{self.name}")
        deadline = time.monotonic() + timeout_s
        while not await self._is_ready():
            if self._process.returncode is not None or time.monotonic() > deadline:
                await self.stop()
                raise BackendFailed(
                    f"{self.name} did not get ready (exit {self._process.returncode}):\n{self._tail()}"
                )
            await asyncio.sleep(_POLL_S)

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Send SIGTERM, then SIGKILL to the process group after `timeout_s`."""
        process = self._process
        if process is None or self._watcher is None:
            return
        self._stopping = True
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            await asyncio.wait([self._watcher], timeout=timeout_s)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await self._watcher

    async def restart(self) -> None:
        """Stop, then start."""
        await self.stop()
        await self.start()

    async def wait(self) -> int:
        """Wait until the process ends and return its exit status (negative: the signal).

        Raises BackendFailed when it was never started.
        """
        if self._watcher is None:
            raise BackendFailed(f"{self.name} was never started")
        return await asyncio.shield(self._watcher)

    async def _spawn(self) -> asyncio.subprocess.Process:
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._log_start = log.tell()
            return await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )

    async def _watch(self, process: asyncio.subprocess.Process) -> int:
        status = await process.wait()
        if not self._stopping and self._on_exit is not None:
            self._on_exit(status)
        return status

    async def _is_ready(self) -> bool:
        if self._ready is None:
            return True
        if isinstance(self._ready, str):
            return await answers(self._ready)
        return await self._ready()

    def _tail(self) -> str:
        with contextlib.suppress(OSError):
            return self.log_path.read_bytes()[self._log_start :][-2000:].decode(errors="replace")
        return ""


async def answers(url: str, timeout_s: float = 1.0) -> bool:
    """Return whether a GET of `url` gets a 2xx status line within `timeout_s`."""
    parts = urlsplit(url)
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                target = parts.path or "/"
                writer.write(
                    f"GET {target} HTTP/1.1\r\nHost: {parts.netloc}\r\nConnection: close\r\n\r\n".encode()
                )
                status_line = await reader.readline()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return status_line[9:10] == b"2"


def stand_in(name: str, port: int, *options: str, log_path: Path) -> Backend:
    """Return a stand-in (membership, embeddings, site) on `port`, independent of the working folder."""
    paths = (str(_REPOSITORY), os.environ.get("PYTHONPATH", ""))
    return Backend(
        name,
        stand_in_argv(name, port, *options),
        env={"PYTHONPATH": os.pathsep.join(filter(None, paths))},
        log_path=log_path,
        ready=f"http://127.0.0.1:{port}/health",
    )
