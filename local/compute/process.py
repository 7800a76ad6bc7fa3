"""Process of one execution environment with its port, pipes, scratch folder and process group."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path

from local.compute.cpu_share import CpuWatch
from local.compute.environment_variables import EnvironmentFactory
from local.compute.launcher import ExitListener, Launcher, SupervisorLost, signal_group
from local.compute.log_files import LogFiles, LogPipe
from local.compute.memory import Groups, MemoryWatch
from local.compute.process_stats import cpu_seconds, group_memory_mb, process_groups
from local.compute.runtime_api import RuntimeConnection, RuntimePort
from local.template.spec import FunctionSpec

_TERM_GRACE_S = 0.3
_EXIT_LIMIT_S = 5.0


class HostContext:
    """Shared by all environments of a host."""

    def __init__(
        self,
        launcher: Launcher,
        logs: LogFiles,
        factory: EnvironmentFactory,
        memory: MemoryWatch,
        cpu: CpuWatch,
        idle_cpu: Callable[[], float | None],
    ) -> None:
        self.launcher = launcher
        self.logs = logs
        self.factory = factory
        self.memory = memory
        self.cpu = cpu
        self.idle_cpu = idle_cpu
        self.scratch: Path | None = None
        """Parent of the environments' private folders; None while the host does not run. Its content is
        deleted, so it never defaults to an existing folder.
        """
        self.init_timeout_s = 10.0
        self.started = 0

    def make_folder(self, name: str) -> Path:
        """Make a new, empty folder. Raises `SupervisorLost` without a running host, OSError if it exists."""
        if self.scratch is None:
            raise SupervisorLost("the host is not running")
        folder = self.scratch / name
        folder.mkdir(parents=True)
        return folder


class EnvironmentProcess:
    """Process that is started once; `on_exit` is called once when it ends or is killed."""

    def __init__(
        self, context: HostContext, on_line: Callable[[str, str], None], on_exit: ExitListener
    ) -> None:
        self._context = context
        self._on_line = on_line
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        context.started += 1
        self._name = f"{context.started:05d}"
        self._scratch: Path | None = None
        """Made by `start`; only folders that this object made are deleted."""
        self._pipes: list[LogPipe] = []
        self._server: asyncio.Server | None = None
        self.connections: set[RuntimeConnection] = set()
        self._pid = 0
        self._exited = asyncio.Event()
        self._cpu_s = 0.0

    async def start(self, spec: FunctionSpec, port: RuntimePort) -> None:
        """Open the port and start the process. Raises OSError or `SupervisorLost`, after cleaning up."""
        try:
            self._scratch = self._context.make_folder(self._name)
            for name in ("stdout", "stderr"):
                self._pipes.append(LogPipe(self._loop, partial(self._on_line, name)))
            self._server = await self._loop.create_server(partial(RuntimeConnection, port), "127.0.0.1", 0)
            number = self._server.sockets[0].getsockname()[1]
            stream = f"[$LATEST]{self._name}{number:05d}"
            request = self._context.factory.request(spec, number, self._scratch, stream)
            out, err = (pipe.write_end for pipe in self._pipes)
            pid = await self._context.launcher.spawn(request, out, err, self._ended)
        except BaseException:
            self._exited.set()
            self._clean_up()
            raise
        for pipe in self._pipes:
            pipe.close_write_end()
        if not self._exited.is_set():
            self._pid = pid

    @property
    def pid(self) -> int:
        """Id of the process and its group; 0 when it does not run."""
        return 0 if self._exited.is_set() else self._pid

    def signal(self, number: int) -> None:
        """Signal the process group."""
        if self.pid:
            signal_group(self.pid, number)

    def kill(self) -> None:
        """End the process group at once."""
        self.signal(signal.SIGKILL)

    async def stop(self) -> None:
        """Send SIGTERM, then SIGKILL; return when the process has ended."""
        self.signal(signal.SIGTERM)
        if not await self._wait_for_exit(_TERM_GRACE_S):
            self.kill()
            await self._wait_for_exit(_EXIT_LIMIT_S)

    def drain(self) -> None:
        """Read what the process has written so far."""
        for pipe in self._pipes:
            pipe.drain()

    def memory_mb(self, limit_mb: float, groups: Groups | None = None) -> float:
        """Return the private memory of the process group in MiB, exact above `limit_mb`."""
        if not self.pid:
            return 0.0
        groups = process_groups() if groups is None else groups
        return group_memory_mb(groups.get(self.pid, ()), limit_mb)

    def cpu_seconds(self) -> float:
        """Return the CPU time so far, of the process and the children it waited for."""
        return cpu_seconds(self.pid) if self.pid else self._cpu_s

    def _ended(self, wait_status: int, cpu_s: float) -> None:
        self._exited.set()
        self._cpu_s = cpu_s
        self.drain()
        self._on_exit(wait_status, cpu_s)
        self._clean_up()

    async def _wait_for_exit(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._exited.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _clean_up(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        for pipe in self._pipes:
            pipe.close()
        folder, self._scratch = self._scratch, None
        if folder is None:
            return
        try:
            os.rmdir(folder)  # noqa: PTH106
        except FileNotFoundError:
            pass
        except OSError:  # not empty
            self._loop.run_in_executor(None, partial(shutil.rmtree, folder, ignore_errors=True))
