"""State folder of one stack: its lock, keys, data and logs.

stack.lock        locked by the process that runs the stack
stack.json        addresses and keys (mode 600); exists only while the stack is ready
processes.json    every process it started, so that those of a killed stack can be ended later
keys.json, membership-keys.json, ports.json, postgres/, aws/, logs/
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from local.stack.process_identity import end_processes, identity

_LOOKED_AT_S = 0.2
"""A process that looks for the running stack takes the lock for a moment; the next try succeeds."""


class AlreadyRunning(RuntimeError):
    """Raised when another stack runs on this state folder."""


@dataclass(frozen=True, slots=True)
class Keys:
    """API keys of a stack: two ordinary callers and an internal one."""

    api_key: str
    other_api_key: str
    ops_key: str


class StateFolder:
    """One state folder, created when it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        self._lock: TextIO | None = None
        self._own = False

    @property
    def logs(self) -> Path:
        """Folder of all logs."""
        return self.path / "logs"

    @property
    def aws(self) -> Path:
        """Folder of the AWS endpoint's state."""
        return self.path / "aws"

    def acquire(self) -> None:
        """Create and lock the folder. Raises AlreadyRunning.

        The lock is released when the process ends, however that happens.
        """
        fresh = self._is_fresh()
        for folder in (self.path, self.logs, self.aws):
            folder.mkdir(parents=True, exist_ok=True)
        lock = (self.path / "stack.lock").open("a+")
        deadline = time.monotonic() + _LOOKED_AT_S
        while not _try_lock(lock, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                lock.close()
                raise AlreadyRunning(
                    f"a stack is running on {self.path} (process {self.running_pid()}); "
                    f"end it with: indexmill down --state {self.path}"
                )
            time.sleep(0.02)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock
        self._own = self._own or fresh

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def running_pid(self) -> int | None:
        """Return the process id of the stack that runs on this folder, or None."""
        file = self.path / "stack.lock"
        try:
            with file.open("r+") as lock:
                if _try_lock(lock, fcntl.LOCK_SH):
                    return None
                text = lock.read().strip()
        except OSError:
            return None
        return int(text) if text.isdigit() else 0

    def reap(self) -> list[int]:
        """End the processes of a killed stack; returns their ids. Only without a running stack."""
        file = self.path / "processes.json"
        try:
            recorded = json.loads(file.read_text())
        except (OSError, ValueError):
            recorded = {}
        ended = end_processes({int(pid): each["started"] for pid, each in recorded.items()})
        file.unlink(missing_ok=True)
        (self.path / "stack.json").unlink(missing_ok=True)
        return ended

    def record(self, processes: Mapping[str, int | None]) -> None:
        """Record the running processes by name."""
        entries = {
            str(pid): {"name": name, "started": identity(pid)}
            for name, pid in processes.items()
            if pid and identity(pid)
        }
        self._write("processes.json", entries)

    def keys(self) -> Keys:
        """Return the folder's keys, created at the first call; Membership's key file always has them."""
        try:
            keys = Keys(**json.loads((self.path / "keys.json").read_text()))
        except (OSError, ValueError, TypeError):
            keys = Keys(*(f"{kind}-{secrets.token_urlsafe(24)}" for kind in ("dev", "dev", "ops")))
            self._write("keys.json", {name: getattr(keys, name) for name in Keys.__slots__})
        file = self.membership_keys
        claims = json.loads(file.read_text()) if file.exists() else {}
        user = {"caller_type": "user", "tier": "enterprise"}
        ops = {"caller_type": "service", "tier": "enterprise"}
        own = {keys.api_key: user, keys.other_api_key: user, keys.ops_key: ops}
        if claims.get(keys.ops_key) == {**ops, "scopes": ["ops"]}:
            # As this folder's key was written before scopes were checked.
            del claims[keys.ops_key]
        self._write(file.name, {**own, **claims})
        return keys

    @property
    def membership_keys(self) -> Path:
        """File of valid keys that the Membership stand-in reads whenever it changes."""
        return self.path / "membership-keys.json"

    def last_port(self, name: str) -> int:
        """Return the port of a stand-in, or of the gateway, at the last start; 0 at the first.

        So URLs of indexed pages, and scripts that name the gateway, stay valid.
        """
        return self._ports().get(name, 0)

    def keep_port(self, name: str, port: int) -> None:
        """Remember a port for the next start."""
        self._write("ports.json", {**self._ports(), name: port})

    def write_info(self, info: Mapping[str, Any]) -> None:
        """Write the addresses and keys of the ready stack."""
        self._write("stack.json", info)

    def read_info(self) -> dict[str, Any] | None:
        """Return the addresses and keys of the running stack; None without a ready one."""
        try:
            info: dict[str, Any] = json.loads((self.path / "stack.json").read_text())
        except (OSError, ValueError):
            return None
        return info

    def delete(self) -> None:
        """Delete the folder with everything in it, if it was missing or empty when it was acquired.

        Any other may contain a user's files, and is kept.
        """
        if self._own:
            shutil.rmtree(self.path, ignore_errors=True)

    def _ports(self) -> dict[str, int]:
        try:
            ports: dict[str, int] = json.loads((self.path / "ports.json").read_text())
        except (OSError, ValueError):
            return {}
        return ports

    def _is_fresh(self) -> bool:
        """Return whether the folder has nothing but the log file that a detached stack's parent opened."""
        expected = {self.logs, self.logs / "stack.log"}
        return not self.path.exists() or all(found in expected for found in self.path.rglob("*"))

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a file atomically, readable by its owner only."""
        draft = self.path / f".{name}.{os.getpid()}"
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file, indent=1)
        draft.replace(self.path / name)


def _try_lock(file: TextIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
