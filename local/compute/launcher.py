"""Client of the supervisor: requests processes and receives their exit statuses."""

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

from local.compute import supervisor

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
    "local.compute.sdk_models",
)
_LOG = logging.getLogger(__name__)
_READY_S = 60.0
_FULL_WAIT_S = 0.002


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


class Launcher:
    """Starts processes through one supervisor, and a new supervisor when that one died."""

    def __init__(self, mode: LaunchMode, preload: Sequence[str], env: Mapping[str, str]) -> None:
        self.mode = mode
        self._preload = tuple(preload) if mode == "fork" else ()
        self._env = dict(env)
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._ready: asyncio.Future[None] | None = None
        self._pids: dict[int, tuple[asyncio.Future[int], ExitListener]] = {}
        self._listeners: dict[int, ExitListener] = {}
        self._number = 0
        self._closed = False
        self.starts = 0

    @property
    def pid(self) -> int:
        """The supervisor's process id; 0 when none runs."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start the supervisor unless it runs; return when its imports are done."""
        async with self._starting:
            if self._closed:
                raise SupervisorLost("the launcher was stopped")
            if self._control is not None:
                return
            loop = asyncio.get_running_loop()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            ours.setblocking(False)
            arguments = [
                sys.executable,
                "-P",
                str(Path(supervisor.__file__)),
                str(theirs.fileno()),
                *self._preload,
            ]
            with theirs:
                self._process = subprocess.Popen(
                    arguments,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )
            self._control = ours
            self._ready = loop.create_future()
            self.starts += 1
            loop.add_reader(ours.fileno(), self._on_readable, ours)
            try:
                await asyncio.wait_for(self._ready, _READY_S)
            except TimeoutError as error:
                self._on_supervisor_end()
                raise SupervisorLost("the supervisor's imports took too long") from error

    async def spawn(self, request: LaunchRequest, stdout: int, stderr: int, on_exit: ExitListener) -> int:
        """Start a process that leads its own group; return its id.

        Raises `SupervisorLost` when no supervisor runs, OSError when the machine has no more processes.
        """
        await self.start()
        self._number += 1
        number = self._number
        pid = asyncio.get_running_loop().create_future()
        self._pids[number] = (pid, on_exit)
        packet = json.dumps({"id": number, "mode": self.mode, **asdict(request)}).encode()
        while True:
            if self._control is None:
                raise SupervisorLost("the supervisor ended")
            try:
                socket.send_fds(self._control, [packet], [stdout, stderr])
                break
            except BlockingIOError:
                await asyncio.sleep(_FULL_WAIT_S)
            except OSError as error:
                self._pids.pop(number, None)
                raise SupervisorLost(str(error)) from error
        return int(await pid)

    async def stop(self) -> None:
        """End the supervisor and with it every process it started."""
        self._closed = True
        self._disconnect()
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)

    def _on_readable(self, control: socket.socket) -> None:
        while control is self._control:
            try:
                data = control.recv(supervisor.PACKET_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._on_supervisor_end()
                return
            self._on_message(json.loads(data))

    def _on_message(self, message: dict[str, Any]) -> None:
        if "ready" in message:
            for name, reason in message["failed"].items():
                _LOG.warning("could not preload %s: %s", name, reason)
            if message["threads"] > 1:
                _LOG.warning("preloading started %d threads: forking is unsafe", message["threads"] - 1)
            if self._ready is not None and not self._ready.done():
                self._ready.set_result(None)
        elif "status" in message:
            listener = self._listeners.pop(message["pid"], None)
            if listener is not None:
                listener(message["status"], message["cpu_s"])
        else:
            pid, listener = self._pids.pop(message["id"])
            if "error" in message:
                if not pid.done():
                    pid.set_exception(OSError(message["error"]))
                return
            self._listeners[message["pid"]] = listener
            if not pid.done():
                pid.set_result(message["pid"])

    def _on_supervisor_end(self) -> None:
        """Start a new supervisor after one died, and its children with it."""
        process, self._process = self._process, None
        self._disconnect()
        if process is not None:
            process.kill()
            process.wait()
        if self._ready is not None and not self._ready.done():
            self._ready.set_exception(SupervisorLost("the supervisor ended while it started"))
        listeners, self._listeners = self._listeners, {}
        for child, listener in listeners.items():
            signal_group(child, signal.SIGKILL)
            listener(signal.SIGKILL, 0.0)
        waiting, self._pids = self._pids, {}
        for pid, _ in waiting.values():
            if not pid.done():
                pid.set_exception(SupervisorLost("the supervisor ended"))

    def _disconnect(self) -> None:
        control, self._control = self._control, None
        if control is not None:
            asyncio.get_running_loop().remove_reader(control.fileno())
            control.close()


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
