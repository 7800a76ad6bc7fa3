"""CPU of a parallel test run by group: its worker, that one's children, and the servers that they started.

The controller, which runs no test, samples /proc once a second. A process belongs to the worker whose name is
in its environment, or to that of its nearest ancestor that has one: the servers of a stack get an environment
of their own. What a worker's processes used since the last sample counts for the group of its last test.
`.pytest_cache/d/cpu/groups.json` has all groups, the end of the run prints the largest.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.parallel import group_of

_EVERY_S: Final = 1.0
_SHOWN: Final = 20
_MARK: Final = b"PYTEST_XDIST_WORKER="
_TICKS: Final = os.sysconf("SC_CLK_TCK")

Key = tuple[int, int]
"""Process id and start time: ids are used again."""


@dataclass(frozen=True, slots=True)
class Process:
    """Process at one moment."""

    parent: int
    cpu_s: float
    """Its own, and that of the children that it waited for."""


def processes(root: Path = Path("/proc")) -> dict[Key, Process]:
    """Return every process that can be read."""
    found = {}
    for folder in root.iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            except OSError:
                continue
            cpu_s = sum(map(int, fields[11:15])) / _TICKS
            found[int(folder.name), int(fields[19])] = Process(int(fields[1]), cpu_s)
    return found


def used(before: Mapping[Key, Process], now: Mapping[Key, Process]) -> float:
    """Return the CPU seconds of one worker's processes between two samples.

    What a process that ended had used before is in the total of the ancestor that waited for it too.
    """
    alive = {key[0] for key in now}
    parents = {key[0]: process.parent for key, process in before.items()}
    total = sum(process.cpu_s - (before[key].cpu_s if key in before else 0.0) for key, process in now.items())
    for key, process in before.items():
        if key not in now:
            ancestor = process.parent
            while ancestor not in alive and ancestor in parents:
                ancestor = parents[ancestor]
            total -= process.cpu_s if ancestor in alive else 0.0
    return max(0.0, total)


class CpuRecord:
    """Samples until it is stopped."""

    def __init__(self) -> None:
        self.by_group: dict[str, float] = defaultdict(float)
        self.current: dict[str, str] = {}
        """Group of each worker's last test."""
        self.pids: dict[int, str] = {}
        """Workers by process id: the name gets into the environment of their children only."""
        self._workers: dict[Key, str] = {}
        self._before: dict[str, dict[Key, Process]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpu-record", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Take the last sample."""
        self._ended.set()
        self._thread.join()
        self._sample()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self._sample()

    def _sample(self) -> None:
        everything = processes()
        keys = {key[0]: key for key in everything}
        # What has no worker yet is looked at again: a worker is known when it is ready.
        self._workers = {key: name for key, name in self._workers.items() if name and key in everything}
        by_worker: dict[str, dict[Key, Process]] = defaultdict(dict)
        for key, process in everything.items():
            worker = self._worker(key, everything, keys)
            if worker:
                by_worker[worker][key] = process
        for worker, now in by_worker.items():
            self.by_group[self.current.get(worker, "collection")] += used(self._before.get(worker, {}), now)
        self._before = by_worker

    def _worker(self, key: Key, everything: Mapping[Key, Process], keys: Mapping[int, Key]) -> str:
        if key not in self._workers:
            parent = keys.get(everything[key].parent)
            inherited = self._worker(parent, everything, keys) if parent is not None and parent != key else ""
            self._workers[key] = self.pids.get(key[0]) or _marked(key[0]) or inherited
        return self._workers[key]


def _marked(pid: int) -> str:
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((each.removeprefix(_MARK).decode() for each in variables if each.startswith(_MARK)), "")


class _Plugin:
    """Hooks of the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._record = CpuRecord()
        self._began = time.monotonic()

    def pytest_testnodeready(self, node: Any) -> None:
        self._record.pids[node.gateway._io.popen.pid] = node.gateway.id

    def pytest_runtest_logreport(self, report: Any) -> None:
        node = getattr(report, "node", None)
        if node is not None:
            self._record.current[node.gateway.id] = group_of(report.nodeid)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        self._record.stop()
        figures = sorted(self._record.by_group.items(), key=lambda row: -row[1])
        cache = getattr(self._config, "cache", None)
        if cache is not None:  # there is none with -p no:cacheprovider
            (cache.mkdir("cpu") / "groups.json").write_text(json.dumps(dict(figures), indent=1) + "\n")
        wall_s = time.monotonic() - self._began
        terminalreporter.section(f"CPU {sum(cpu for _, cpu in figures):.0f} s in {wall_s:.0f} s, by group")
        for name, cpu_s in figures[:_SHOWN]:
            terminalreporter.line(f"{cpu_s:7.1f} s  {name}")


def pytest_configure(config: pytest.Config) -> None:
    parallel = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if parallel and Path("/proc/self/stat").exists():
        config.pluginmanager.register(_Plugin(config), "cpu-record")
