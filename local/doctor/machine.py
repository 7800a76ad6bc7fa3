"""Checks of the machine and of processes that earlier stacks left running."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from local.doctor.finding import Finding, note, ok, wrong
from local.stack.process_identity import is_running
from local.stack.state import StateFolder

_HEALTH_S: Final = 10.0
_MB: Final = 1 << 20
NEEDED_MB: Final = 300
"""A new stack takes about 100 MB: the database's files, its write-ahead log, logs."""
COMFORTABLE_MB: Final = 2000


def ports() -> Iterator[Finding]:
    """Check that a program can listen on the loopback address, and that another can connect."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            with socket.create_connection(("127.0.0.1", port), timeout=2.0):
                pass
    except OSError as error:
        mend = "let programs listen on 127.0.0.1: check the sandbox, the container or the firewall"
        affects = "no part of a stack can reach another, so none starts"
        yield wrong("loopback", f"127.0.0.1 cannot be used: {error}", affects, mend)
        return
    yield ok("loopback", "127.0.0.1")


def disk(state: Path) -> Iterator[Finding]:
    """Check free space for the state folder and for the folder of temporary files."""
    import tempfile

    for about, folder in (("disk", _existing(state)), ("temporary files", Path(tempfile.gettempdir()))):
        free = shutil.disk_usage(folder).free // _MB
        text = f"{free} MB free at {folder}"
        if free < NEEDED_MB:
            affects = f"a stack needs {NEEDED_MB} MB to start"
            yield wrong(about, text, affects, "free some space, or choose another --state")
        elif free < COMFORTABLE_MB:
            yield note(about, text, "large corpora and long logs may fill it", "free some space")
        else:
            yield ok(about, text)


def stacks(state: Path) -> Iterator[Finding]:
    """Check for processes that run on the state folder, or that a killed stack left behind."""
    about = "stack"
    folder = StateFolder(state)
    pid = folder.running_pid()
    if pid is not None:
        if (info := folder.read_info()) is not None:
            yield running(pid, info)
        else:
            affects = "commands say that no stack is running"
            mend = f"wait a few seconds, then look at {state}/logs/stack.log"
            yield note(about, f"process {pid} runs on {state} and is not ready", affects, mend)
        return
    left = _remaining_processes(state)
    if left:
        named = ", ".join(f"{name} ({pid})" for pid, name in left.items())
        affects = "they use memory, and its data and ports, until the next start ends them"
        mend = f"indexmill down --state {state}"
        yield wrong(about, f"a killed stack on {state} left processes: {named}", affects, mend)
    elif (state / "stack.json").exists():
        affects = "nothing: the next start continues with its data"
        yield note(about, f"the one on {state} was killed", affects, f"indexmill up --state {state}")
    else:
        yield ok(about, "none runs")


def running(pid: int, info: Mapping[str, Any]) -> Finding:
    """Return what the stack says of itself, and since when something holds it back."""
    import psycopg

    from local.stack import conditions

    about, runs = "stack", f"runs, process {pid}"
    try:
        with urlopen(f"{info['gateway']}/orchestrator/health", timeout=_HEALTH_S) as answer:  # noqa: S310 - own loopback port
            health = json.load(answer)
        shown = list(conditions.lines(conditions.read(info)))
    except (OSError, ValueError, psycopg.Error) as error:
        affects, mend = "no job can be submitted", "indexmill status, then indexmill logs"
        return wrong(about, f"{runs}, and does not answer: {error}", affects, mend)
    held = [f"{name} {state}" for name, state in health["stages"].items() if state != "up"]
    held += ["limits local"] if health.get("limits") == "local" else []
    if health["status"] == "ok" and not shown:
        return ok(about, f"{runs}, ok")
    text = ", ".join([f"{runs}, {health['status']}", *held])
    affects = "jobs wait, or were not finished, or searches find less"
    return note(about, "; ".join([text, *shown]), affects, "indexmill status")


def _remaining_processes(state: Path) -> dict[int, str]:
    try:
        recorded = json.loads((state / "processes.json").read_text())
        return {
            int(pid): str(each["name"])
            for pid, each in recorded.items()
            if is_running(int(pid), each["started"])
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _existing(folder: Path) -> Path:
    folder = folder.resolve()
    return next(each for each in (folder, *folder.parents) if each.is_dir())
