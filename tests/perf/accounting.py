"""CPU and memory of a running stack by component, from /proc.

CPU is user + system, children that ended included. Components: `host` (gateway, triggers, the Lambda host),
`supervisor` (starts the functions' processes), `function:NAME`, `aws` (MiniStack), `postgres`; and separately
`stand-in:NAME`, which replaces an external service.
"""

from __future__ import annotations

import json
import os
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.compute.process_stats import proportional_memory_mb
from local.stack.process_identity import descendants
from tests.perf.machine import MachineUse

STAND_INS = ("site", "membership", "embeddings")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """CPU seconds of everything, at one moment."""

    at: float
    cpu_s: Mapping[str, float]
    machine: MachineUse
    invocations: Mapping[str, int] = field(default_factory=dict)
    own_cpu_s: float = 0.0
    """Of the process that asks: the load generator."""


class Accountant:
    """Reads what the processes of one stack used.

    Args:
        info: What `indexmill up --json` printed.
        outside: Process ids of further stand-ins, by name.
    """

    def __init__(self, info: Mapping[str, Any], outside: Mapping[str, int] | None = None) -> None:
        self._outside = dict(outside or {})
        self._pid = int(info["pid"])
        self._status_url = f"{info['control']}/status"
        self._processes = Path(info["state"]) / "processes.json"

    def status(self) -> dict[str, Any]:
        """The stack's own counters."""
        with urllib.request.urlopen(self._status_url, timeout=10) as answer:  # noqa: S310 - loopback
            found: dict[str, Any] = json.load(answer)
        return found

    def snapshot(self) -> Snapshot:
        """Return the resources used so far."""
        status = self.status()
        cpu = {"host": _own(self._pid) + _reaped(self._pid)}
        for name, service in status["services"].items():
            cpu[_component(name)] = _tree_cpu(service["pid"])
        cpu |= {f"stand-in:{name}": _tree_cpu(pid) for name, pid in self._outside.items()}
        supervisor = self._supervisor()
        cpu["supervisor"] = _own(supervisor)
        functions = {
            f"function:{_short(name)}": stats["cpu_s"] for name, stats in status["functions"].items()
        }
        # The supervisor with the project's packages, and living children of the functions' processes.
        cpu["function:children"] = _tree_cpu(supervisor) - cpu["supervisor"] - sum(functions.values())
        cpu |= functions
        invocations = {_short(name): stats["invocations"] for name, stats in status["functions"].items()}
        return Snapshot(time.monotonic(), cpu, MachineUse.now(), invocations, time.process_time())

    def memory(self) -> dict[str, float]:
        """Return the PSS of each component, MiB; all functions together count as `functions`."""
        found = {"host": proportional_memory_mb(self._pid)}
        for name, service in self.status()["services"].items():
            found[_component(name)] = _tree_memory(service["pid"])
        found["functions"] = _tree_memory(self._supervisor())
        return {name: round(value, 1) for name, value in found.items()}

    def process_count(self) -> int:
        """Return the number of the stack's processes, stand-ins included."""
        return 1 + len(descendants(self._pid))

    def _supervisor(self) -> int:
        recorded = json.loads(self._processes.read_text())
        return next(int(pid) for pid, entry in recorded.items() if entry["name"] == "functions")


def difference(before: Snapshot, after: Snapshot, jobs: int) -> dict[str, Any]:
    """Return the resources used between two snapshots, per job.

    `other_cores` is what processes used that have no part in the benchmark, `stolen_cores` what other virtual
    machines of the same host took away.
    """
    wall = after.at - before.at
    generator = after.own_cpu_s - before.own_cpu_s
    busy_s = after.machine.busy_s - before.machine.busy_s
    stolen_s = after.machine.stolen_s - before.machine.stolen_s
    spent = {name: value - before.cpu_s.get(name, 0.0) for name, value in after.cpu_s.items()}
    own = {name: value for name, value in spent.items() if not name.startswith("stand-in:")}
    aside = {name: value for name, value in spent.items() if name.startswith("stand-in:")}
    return {
        "cpu_ms_per_job": round(sum(own.values()) / jobs * 1e3, 2),
        "cpu_ms_by_component": _ranked(own, jobs),
        "stand_in_cpu_ms_per_job": round(sum(aside.values()) / jobs * 1e3, 2),
        "stand_in_cpu_ms_by_component": _ranked(aside, jobs),
        "invocations_per_job": {
            name: round((count - before.invocations.get(name, 0)) / jobs, 3)
            for name, count in after.invocations.items()
            if count > before.invocations.get(name, 0)
        },
        "wall_s": round(wall, 2),
        "own_cores": round(sum(own.values()) / wall, 2),
        "load_generator_cpu_ms_per_job": round(generator / jobs * 1e3, 2),
        "machine_cores_busy": round(busy_s / wall, 2),
        "stolen_cores": round(stolen_s / wall, 2),
        "other_cores": round(max(0.0, busy_s - sum(spent.values()) - generator) / wall, 2),
    }


def own_memory(memory: Mapping[str, float]) -> float:
    """PSS of the stack without its stand-ins, MiB."""
    return round(sum(value for name, value in memory.items() if not name.startswith("stand-in:")), 1)


def _ranked(spent: Mapping[str, float], jobs: int) -> dict[str, float]:
    """Milliseconds per job, most expensive first, without what did nothing."""
    per_job = {name: round(value / jobs * 1e3, 2) for name, value in spent.items()}
    return dict(sorted(((name, ms) for name, ms in per_job.items() if ms > 0), key=lambda item: -item[1]))


def _component(service: str) -> str:
    return f"stand-in:{service}" if service in STAND_INS else service


def _short(function: str) -> str:
    """The function's name without the stack's."""
    return function.partition("-")[2] or function


def _tree_cpu(pid: int | None) -> float:
    return sum(_own(each) + _reaped(each) for each in (pid, *descendants(pid))) if pid else 0.0


def _tree_memory(pid: int | None) -> float:
    return sum(proportional_memory_mb(each) for each in (pid, *descendants(pid))) if pid else 0.0


def _own(pid: int) -> float:
    return _ticks(pid, 11)


def _reaped(pid: int) -> float:
    return _ticks(pid, 13)


def _ticks(pid: int, first: int) -> float:
    """Two neighbouring fields of /proc/PID/stat after the command's name, seconds; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[first]) + int(fields[first + 1])) / _TICKS_PER_S
