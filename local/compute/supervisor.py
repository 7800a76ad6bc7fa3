"""Supervisor: starts and reaps the processes of execution environments; its script is `preloaded`.

It imports third-party modules once and then forks a child per environment ("fork": the imports are shared),
or lets the child execute a fresh interpreter ("exec"). A child may be another supervisor, which imports the
project's packages too and serves a socket of its own: one for each version of the code. A supervisor stays
single-threaded, because a forked copy of a process with threads may inherit a locked lock without its owner.

The control socket carries one JSON document per packet:
    in   {"id", "mode", "handler", "env", "cwd", "path"} and two file descriptors, stdout and stderr;
         {"id", "mode": "supervisor", "path", "packages"} and one, the other supervisor's control socket
    out  {"ready": true, "failed": {module: reason}, "threads": n} once
         {"id", "pid"} or {"id", "error"}
         {"pid", "status", "cpu_s"} when a child ended; `status` as from `os.wait`
When the socket closes, every child is killed and the process ends: nothing outlives the host.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from local.compute.preloaded import ImportRecord, Preloaded

PACKET_BYTES = 1 << 18
_PATH = tuple(sys.path)

# Dependencies of the runtime client. Not the client itself: it reads the environment while it is loaded.
_END_S = 2.0
_END_POLL_S = 0.005
_CLIENT_NEEDS = ("simplejson", "http.client", "logging", "uuid", "awslambdaric.lambda_context")


@dataclass(slots=True)
class Child:
    """Parameters of a forked child."""

    mode: str
    path: list[str]
    fds: Sequence[int]
    handler: str = ""
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = ""
    packages: Sequence[str] = ()
    """Folders of packages."""


class Supervisor:
    """Serves the control socket until it closes."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, str] = {}
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)

    def serve(self, failed: Mapping[str, str]) -> Child | None:
        """Fork on request, reap. Returns a `Child` in each child, None in the parent at the end.

        `failed` are the modules that could not be imported, with the reasons.
        """
        gc.freeze()  # later collections then leave the shared pages unchanged
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._send({"ready": True, "failed": failed, "threads": _thread_count()})
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._wake_read:
                    self._reap()
                    continue
                data, fds = self._receive()
                if not data:
                    self._kill_all()
                    return None
                child = self._spawn(json.loads(data), fds)
                if child is not None:
                    return child

    def _receive(self) -> tuple[bytes, Sequence[int]]:
        try:
            return socket.recv_fds(self._control, PACKET_BYTES, 2, socket.MSG_CMSG_CLOEXEC)[:2]
        except ConnectionResetError:  # the host ended before it read everything
            return b"", ()

    def _spawn(self, request: dict[str, Any], fds: Sequence[int]) -> Child | None:
        number = request.pop("id")
        try:
            pid = os.fork()
        except OSError as error:
            self._send({"id": number, "error": str(error)})
            pid = -1
        if pid == 0:
            self._detach_child()
            return Child(fds=fds, **request)
        for fd in fds:
            os.close(fd)
        if pid > 0:
            _own_group(pid)
            self._children[pid] = request["mode"]
            self._send({"id": number, "pid": pid})
        return None

    def _detach_child(self) -> None:
        """Close in the child what belongs to the supervisor."""
        _own_group(0)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _reap(self) -> None:
        try:
            while os.read(self._wake_read, 512):
                pass
        except BlockingIOError:
            pass
        while self._children:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if found is None:
                return
            # Before the pid is reaped: processes that the child left behind are still in its group.
            _kill_group(found.si_pid)
            pid, status, usage = os.wait4(found.si_pid, 0)
            self._children.pop(pid, None)
            self._send({"pid": pid, "status": status, "cpu_s": usage.ru_utime + usage.ru_stime})

    def _kill_all(self) -> None:
        # Another supervisor ends by itself, after its children.
        deadline = time.monotonic() + _END_S
        supervisors = {pid for pid, mode in self._children.items() if mode == "supervisor"}
        for pid in self._children.keys() - supervisors:
            _kill_group(pid)
        while supervisors and time.monotonic() < deadline:
            supervisors -= {pid for pid in supervisors if os.waitpid(pid, os.WNOHANG)[0]}
            time.sleep(_END_POLL_S)
        for pid in supervisors:
            _kill_group(pid)

    def _send(self, message: dict[str, object]) -> None:
        # When the host is gone, the next poll reports it.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._control.send(json.dumps(message).encode())


def import_all(names: Sequence[str]) -> dict[str, str]:
    """Import each module; return the reasons of those that failed."""
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001 - a broken third-party module must not keep the others from loading
            failed[name] = f"{type(error).__name__}: {error}"
    return failed


def modules_in(packages: Sequence[str]) -> Iterator[str]:
    """Yield the names of all modules in these folders of packages, but of those that are programs."""
    for package in packages:
        above = os.path.dirname(package)  # noqa: PTH120
        for folder, _, files in os.walk(package):
            name = os.path.relpath(folder, above).replace(os.sep, ".")
            if "__init__.py" in files:
                yield name
                modules = (file.removesuffix(".py") for file in sorted(files) if file.endswith(".py"))
                yield from (f"{name}.{module}" for module in modules if not module.startswith("__"))


def run_child(child: Child, preloaded: Preloaded) -> None:
    """Turn this forked process into an execution environment; exits as the runtime client does."""
    for number, fd in enumerate(child.fds, start=1):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(child.cwd)
    if child.mode == "exec":
        # -P, because the path already lists the code's folders in their order.
        command = [sys.executable, "-P", "-m", "awslambdaric", child.handler]
        os.execve(sys.executable, command, child.env)  # noqa: S606
    os.environ.clear()
    os.environ.update(child.env)
    time.tzset()
    sys.dont_write_bytecode = True
    sys.path[:] = dict.fromkeys((*child.path, *_PATH))
    sys.path_importer_cache.clear()
    sys.argv = ["awslambdaric", child.handler]
    _unload_shadowed(child.path, preloaded)
    _import_sitecustomize()
    gc.enable()
    import runpy

    runpy.run_module("awslambdaric", run_name="__main__", alter_sys=True)


def _unload_shadowed(path: Sequence[str], preloaded: Preloaded) -> None:
    """Unload preloaded modules of which the function or a layer has its own, as in a new interpreter."""
    seen = {"__main__", *sys.stdlib_module_names}
    for folder in path:
        entries = os.listdir(folder) if os.path.isdir(folder) else ()  # noqa: PTH112, PTH208
        for name in {entry.partition(".")[0] for entry in entries} - seen:
            seen.add(name)
            preloaded.drop(name, folder + os.sep)


def _import_sitecustomize() -> None:
    """Import sitecustomize as the interpreter does at start: errors are printed and ignored."""
    sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            traceback.print_exc()
    except Exception:  # noqa: BLE001
        traceback.print_exc()


def _own_group(pid: int) -> None:
    """Make the process lead a group; done on both sides of the fork, so that a kill never comes before it."""
    with contextlib.suppress(OSError):  # the other side was first, or the child is gone
        os.setpgid(pid, pid)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, signal.SIGKILL)


def _thread_count() -> int:
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return 1


def main(arguments: Sequence[str], record: ImportRecord) -> None:
    """`arguments`: the control socket's descriptor, and the modules to import."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()
    control, names = socket.socket(fileno=int(arguments[0])), arguments[1:]
    failed = import_all((*_CLIENT_NEEDS, *names) if names else ())
    preloaded = Preloaded()
    preloaded.hide(record)
    child = Supervisor(control).serve(failed)
    while child is not None and child.mode == "supervisor":
        sys.dont_write_bytecode = True
        sys.path[:] = dict.fromkeys((*child.path, *_PATH))
        sys.path_importer_cache.clear()
        _unload_shadowed(child.path, preloaded)
        control = socket.socket(fileno=child.fds[0])
        failed = import_all(list(modules_in(child.packages)))
        preloaded.hide(record)
        child = Supervisor(control).serve(failed)
    if child is not None:
        record.end()
        run_child(child, preloaded)
