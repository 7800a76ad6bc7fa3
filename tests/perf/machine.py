"""Use of a machine by others while a benchmark runs on it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class MachineUse:
    """CPU seconds of the whole machine since its start."""

    busy_s: float
    """Of all processes: user, nice, system, irq, softirq."""
    stolen_s: float
    """What a virtual machine asked for and did not get, because its host gave it to others."""

    @classmethod
    def now(cls) -> MachineUse:
        """Read /proc/stat."""
        line = Path("/proc/stat").read_text().split("\n", 1)[0]
        user, nice, system, _, _, irq, softirq, steal = (int(value) for value in line.split()[1:9])
        return cls((user + nice + system + irq + softirq) / _TICKS_PER_S, steal / _TICKS_PER_S)


class Watch:
    """Use of the machine by others since this was made: not by this process, nor by its children."""

    def __init__(self) -> None:
        self._load = round(os.getloadavg()[0], 2)
        self._began, self._before, self._own = time.monotonic(), MachineUse.now(), _own_s()

    def lines(self) -> Iterator[str]:
        """Yield what to print at the end, when the children are gone."""
        wall = time.monotonic() - self._began
        after = MachineUse.now()
        others = after.busy_s - self._before.busy_s - (_own_s() - self._own)
        stolen = after.stolen_s - self._before.stolen_s
        phase = {
            "other_cores": round(max(0.0, others) / wall, 2),
            "stolen_cores": round(stolen / wall, 2),
        }
        yield from busy(self._load, {"all of it": phase})


def busy(load_before: float, phases: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield how busy the machine was before, and what others took of it meanwhile."""
    yield f"machine: {os.cpu_count()} cores, load {load_before} before"
    for key, who in (("other_cores", "other processes used"), ("stolen_cores", "the host gave to others")):
        yield f"cores that {who}: " + ", ".join(f"{name} {phase[key]}" for name, phase in phases.items())


def _own_s() -> float:
    """Return the CPU of this process and of its children that have ended, seconds."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
