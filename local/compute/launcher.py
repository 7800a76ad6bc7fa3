"""Client of the supervisors: requests processes and receives their exit statuses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from local.compute import preloaded
from local.compute.reload import WatchedTree
from local.compute.supervisor import PACKET_BYTES

LaunchMode = Literal["fork", "exec"]
ExitListener = Callable[[int, float], None]
"""Called once with the wait status and the CPU seconds of a process."""

DEFAULT_PRELOAD = (
    "boto3",
    "botocore.httpsession",
    "fastapi",
    "mangum",
    "pydantic",
    "psycopg",
    "httpx",
    "aws_lambda_powertools",
    "aws_lambda_powertools.metrics",
    "openai.resources.embeddings",
    "html_to_markdown",
    "selectolax.lexbor",
    "tokenizers",
    "Stemmer",
)
_LOG = logging.getLogger(__name__)
_READY_S = 60.0
_FULL_WAIT_S = 0.002
_FIRST_WAIT_S = 5.0
"""How long environments wait for the first import of packages, which they could import themselves."""


class SupervisorLost(Exception):
    """Raised when the supervisor ended, or did not start."""


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Parameters of an execution environment's process."""

    handler: str
    env: Mapping[str, str]
    cwd: str
    path: Sequence[str]
    """Folders before the interpreter's own on the module path; `env` carries the same in PYTHONPATH."""
    packages: tuple[Path, ...] = ()
    """Packages of the project in layers, which may be imported before the fork."""


class SupervisorLink:
    """Connection to a supervisor; `on_end` is called once when that ended by itself."""

    def __init__(self, control: socket.socket, on_end: Callable[[], None]) -> None:
        control.setblocking(False)
        self._control: socket.socket | None = control
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self.ready: asyncio.Future[dict[str, str]] = self._loop.create_future()
        """Reasons of failed imports by module, once they are done."""
        self._pids: dict[int, tuple[asyncio.Future[int], ExitListener]] = {}
        self._listeners: dict[int, ExitListener] = {}
        self._number = 0
        self._retired = False
        self._loop.add_reader(control.fileno(), self._on_readable)

    async def spawn(self, message: Mapping[str, Any], fds: Sequence[int], on_exit: ExitListener) -> int:
        """Start a process that leads its own group; return its id.

        Raises `SupervisorLost` when the supervisor ended, OSError when the machine has no more processes.
        """
        self._number += 1
        number = self._number
        pid = self._loop.create_future()
        self._pids[number] = (pid, on_exit)
        packet = json.dumps({"id": number, **message}, default=str).encode()
        while True:
            if self._control is None:
                raise SupervisorLost("the supervisor ended")
            try:
                socket.send_fds(self._control, [packet], fds)
                break
            except BlockingIOError:
                await asyncio.sleep(_FULL_WAIT_S)
            except OSError as error:
                self._pids.pop(number, None)
                raise SupervisorLost(str(error)) from error
        return int(await pid)

    def retire(self) -> None:
        """End the supervisor as soon as it has no process."""
        self._retired = True
        if not self._pids and not self._listeners:
            self.close()

    def close(self) -> None:
        """End the supervisor, and with it every process that it started."""
        control, self._control = self._control, None
        if control is not None:
            self._loop.remove_reader(control.fileno())
            control.close()

    def lost(self, reason: str = "the supervisor ended") -> None:
        """End its processes, and whatever waits for it."""
        if self._control is None:
            return
        self.close()
        if not self.ready.done():
            self.ready.set_exception(SupervisorLost(f"{reason} while it started"))
            self.ready.exception()  # seen: nothing may wait for it
        listeners, self._listeners = self._listeners, {}
        for child, listener in listeners.items():
            signal_group(child, signal.SIGKILL)
            listener(signal.SIGKILL, 0.0)
        waiting, self._pids = self._pids, {}
        for pid, _ in waiting.values():
            if not pid.done():
                pid.set_exception(SupervisorLost(reason))
        self._on_end()

    def _on_readable(self) -> None:
        while self._control is not None:
            try:
                data = self._control.recv(PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self.lost()
                return
            self._on_message(json.loads(data))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            if message["threads"] > 1:
                _LOG.warning("preloading started %d threads: forking is unsafe", message["threads"] - 1)
            if not self.ready.done():
                self.ready.set_result(message["failed"])
        elif "status" in message:
            listener = self._listeners.pop(message["pid"], None)
            if listener is not None:
                listener(message["status"], message["cpu_s"])
            if self._retired:
                self.retire()
        else:
            pid, listener = self._pids.pop(message["id"])
            if "error" in message:
                if not pid.done():
                    pid.set_exception(OSError(message["error"]))
                return
            self._listeners[message["pid"]] = listener
            if not pid.done():
                pid.set_result(message["pid"])


@dataclass(slots=True)
class _Warm:
    """Supervisor that has imported some packages of the project, in one version of their code."""

    version: int
    first: bool
    """Whether it is the first with these packages."""
    link: SupervisorLink | None = None
    pid: int = 0
    building: asyncio.Task[None] | None = None


class Launcher:
    """Starts processes through supervisors, and a new supervisor when one died.

    The first supervisor imports third-party modules. One more for each set of packages imports these, in one
    version of their code. Right after an edit an environment is forked from the first, since it is ready
    sooner when it imports only what it needs.
    """

    def __init__(
        self,
        mode: LaunchMode,
        preload: Sequence[str],
        env: Mapping[str, str],
        trees: dict[Path, WatchedTree] | None = None,
    ) -> None:
        """`trees` are those by which the pools notice an edit too; None: code does not change."""
        self.mode = mode
        self._preload = tuple(preload) if mode == "fork" else ()
        self._env = dict(env)
        self._trees = trees
        self._process: subprocess.Popen[bytes] | None = None
        self._link: SupervisorLink | None = None
        self._starting = asyncio.Lock()
        self._warm: dict[tuple[Path, ...], _Warm] = {}
        self._closed = False
        self.starts = 0

    @property
    def pid(self) -> int:
        """The first supervisor's process id; 0 when none runs."""
        return self._process.pid if self._process is not None else 0

    @property
    def warm_pids(self) -> list[int]:
        """Process ids of the supervisors that have imported the project's packages."""
        return [warm.pid for warm in self._warm.values() if warm.link is not None]

    async def start(self) -> None:
        """Start the first supervisor unless it runs; return when its imports are done."""
        await self._started()

    async def _started(self) -> SupervisorLink:
        async with self._starting:
            if self._closed:
                raise SupervisorLost("the launcher was stopped")
            if self._link is not None:
                return self._link
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            script = str(Path(preloaded.__file__))
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", script, str(theirs.fileno()), *self._preload],
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            link = self._link = SupervisorLink(ours, self._on_end)
            self.starts += 1
            try:
                failed = await asyncio.wait_for(link.ready, _READY_S)
            except TimeoutError as error:
                link.lost()
                raise SupervisorLost("the supervisor's imports took too long") from error
            for name, reason in failed.items():
                _LOG.warning("could not preload %s: %s", name, reason)
            return link

    async def spawn(self, request: LaunchRequest, stdout: int, stderr: int, on_exit: ExitListener) -> int:
        """Start a process that leads its own group; return its id.

        Raises `SupervisorLost` when no supervisor runs, OSError when the machine has no more processes.
        """
        first = await self._started()
        link = await self._warm_link(request.packages) or first
        message = {"mode": self.mode, **asdict(request), "packages": ()}
        return await link.spawn(message, (stdout, stderr), on_exit)

    def prepare(self, packages: tuple[Path, ...]) -> None:
        """Begin to import these packages, so that the first environments need not."""
        if packages and self._preload and packages not in self._warm:
            warm = self._warm[packages] = _Warm(self._version(packages), first=True)
            warm.building = asyncio.get_running_loop().create_task(self._build(packages, warm))

    async def stop(self) -> None:
        """End the supervisors and with them every process they started."""
        self._closed = True
        for packages in list(self._warm):
            self._drop(packages, SupervisorLink.close)
        if self._link is not None:
            self._link.close()
        process, self._process, self._link = self._process, None, None
        if process is not None:
            await asyncio.to_thread(_end, process)

    async def _warm_link(self, packages: tuple[Path, ...]) -> SupervisorLink | None:
        """Return the supervisor with this version of the packages; None when it is not ready."""
        self.prepare(packages)
        if (warm := self._warm.get(packages)) is None:
            return None
        if warm.version != (version := self._version(packages)):
            self._drop(packages, SupervisorLink.retire)
            self._warm[packages] = _Warm(version, first=False)
            return None
        if warm.building is None:
            warm.building = asyncio.get_running_loop().create_task(self._build(packages, warm))
        if warm.first:
            await asyncio.wait({warm.building}, timeout=_FIRST_WAIT_S)
        # Another environment may have found an edit meanwhile.
        return warm.link if self._warm.get(packages) is warm else None

    async def _build(self, packages: tuple[Path, ...], warm: _Warm) -> None:
        """Start the supervisor with these packages; without one environments import them."""
        first = await self._started()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        link = SupervisorLink(ours, lambda: self._on_warm_end(packages, warm))
        path = list(dict.fromkeys(package.parent for package in packages))
        message = {"mode": "supervisor", "path": path, "packages": packages}
        try:
            with theirs:
                warm.pid = await first.spawn(message, (theirs.fileno(),), lambda *_: None)
            await link.ready
        except (OSError, SupervisorLost) as error:
            _LOG.warning("could not import %s before the fork: %s", packages[0].name, error)
        except asyncio.CancelledError:
            link.close()
            if warm.pid:
                signal_group(warm.pid, signal.SIGKILL)
            raise
        else:
            warm.link = link

    def _version(self, packages: tuple[Path, ...]) -> int:
        if self._trees is None:
            return 0
        for package in packages:
            if package not in self._trees:
                self._trees[package] = WatchedTree(package)
        return sum(self._trees[package].current_version() for package in packages)

    def _drop(self, packages: tuple[Path, ...], end: Callable[[SupervisorLink], None]) -> None:
        warm = self._warm.pop(packages)
        if warm.link is not None:
            end(warm.link)
        elif warm.building is not None:
            warm.building.cancel()

    def _on_warm_end(self, packages: tuple[Path, ...], warm: _Warm) -> None:
        if self._warm.get(packages) is warm and warm.link is not None:
            del self._warm[packages]

    def _on_end(self) -> None:
        """Let the next environment start a new supervisor."""
        process, self._process, self._link = self._process, None, None
        if process is not None:
            process.kill()
            process.wait()
        for warm in list(self._warm.values()):
            if warm.link is not None:
                signal_group(warm.pid, signal.SIGKILL)
                warm.link.lost()
        for packages in list(self._warm):
            self._drop(packages, SupervisorLink.close)


def signal_group(pid: int, number: int) -> None:
    """Signal a process and everything in its group; no effect when it is gone."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(5.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
