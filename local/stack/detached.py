"""Stacks in separate processes: start, find, stop."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from local.stack.options import StackOptions, encode
from local.stack.preparation import REPOSITORY
from local.stack.process_identity import identity, is_running
from local.stack.state import StateFolder

_STOP_S: Final = 12.0
_POLL_S: Final = 0.02


class StartFailed(RuntimeError):
    """Raised when the stack did not start; `usage` is True when template or parameters are wrong."""

    def __init__(self, sentence: str, *, usage: bool = False) -> None:
        super().__init__(sentence)
        self.usage = usage


@dataclass(slots=True)
class DetachedStack:
    """Stack that was started here in its own process."""

    info: dict[str, Any]
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """Stop it and wait for its end."""
        _end(self.process)


def start_detached(options: StackOptions, *, bound: bool = False) -> DetachedStack:
    """Start a stack and wait until it is ready; `bound` ends it with this process, even after a kill.

    Raises StartFailed. An interrupt while waiting stops it again.
    """
    state = StateFolder(options.state)
    state.logs.mkdir(parents=True, exist_ok=True)
    paths = (str(REPOSITORY), os.environ.get("PYTHONPATH", ""))
    with (state.logs / "stack.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "local.stack.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            start_new_session=True,
            text=True,
        )
    if process.stdin is None or process.stdout is None:
        raise StartFailed("the stack's process has no pipes")
    try:
        process.stdin.write(encode(options, bound=bound) + "\n")
        process.stdin.flush()
        if not bound:
            process.stdin.close()
        line = process.stdout.readline()
    except BaseException:
        _end(process)
        raise
    at_once = f"it ended at once; see {state.logs / 'stack.log'}"
    message: dict[str, Any] = json.loads(line) if line else {"error": at_once}
    if "error" in message:
        _end(process)
        raise StartFailed(message["error"], usage=message.get("usage", False))
    return DetachedStack(message["ready"], process)


def find(state: Path) -> dict[str, Any] | None:
    """Return the addresses and keys of the stack on this state folder; None without a ready one."""
    folder = StateFolder(state)
    return folder.read_info() if folder.running_pid() is not None else None


def stop(state: Path) -> bool:
    """Stop the stack on this state folder, or end the processes of a killed one; False without either."""
    folder = StateFolder(state)
    pid = folder.running_pid()
    if pid is None:
        return bool(folder.reap()) if folder.path.is_dir() else False
    known_as = identity(pid) if pid else None
    if pid:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    # It releases the folder a moment before its process ends.
    while folder.running_pid() is not None or (known_as and is_running(pid, known_as)):
        if pid and time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            deadline += _STOP_S
        time.sleep(_POLL_S)
    folder.reap()
    return True


def _end(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
