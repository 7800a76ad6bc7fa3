"""Process identity: process ids are reused, so a recorded one needs the start time beside it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

_POLL_S = 0.02


def identity(pid: int) -> str | None:
    """Return a value that tells this process from a later one with the same id; None without a live one."""
    if not Path("/proc/self/stat").exists():
        return _identity_by_ps(pid)
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command's name is in parentheses and may contain spaces; state and start time follow it.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def is_running(pid: int, known_as: str) -> bool:
    """Return whether the recorded process still runs."""
    return identity(pid) == known_as


def end_processes(recorded: Mapping[int, str], *, grace_s: float = 3.0) -> list[int]:
    """Send SIGINT to the recorded processes, and SIGKILL to the groups of those that run after `grace_s`.

    Each must lead a group of its own. Returns those that were still running.
    """
    alive = [pid for pid, known_as in recorded.items() if is_running(pid, known_as)]
    for pid in alive:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGINT)
    deadline = time.monotonic() + grace_s
    left = alive
    while left and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        left = [pid for pid in left if is_running(pid, recorded[pid])]
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
    return alive


def descendants(pid: int) -> list[int]:
    """Return the process's children, their children and so on; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for entry in _numbered(Path("/proc")):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ = [], [pid]
    while open_:
        below = children.get(open_.pop(), [])
        found += below
        open_ += below
    return found


def _numbered(folder: Path) -> Iterable[Path]:
    return (entry for entry in folder.glob("[0-9]*")) if folder.is_dir() else ()


def _identity_by_ps(pid: int) -> str | None:
    command = ["ps", "-p", str(pid), "-o", "stat=,lstart="]
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    state, _, started = shown.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
