"""Figures of processes and of the machine from /proc; processes are all zero where there is no /proc."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def private_memory_mb(pid: int) -> float:
    """Return resident memory that is not backed by files, MiB."""
    fields = _read(pid, "statm").split()
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES / (1 << 20) if fields else 0.0


def process_groups() -> dict[int, list[int]]:
    """Return the pids of each process group of this machine; empty where there is no /proc."""
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):  # noqa: PTH208
            with contextlib.suppress(OSError):  # ended meanwhile
                found.setdefault(os.getpgid(pid), []).append(pid)
    return found


def group_memory_mb(pids: Collection[int], limit_mb: float = math.inf) -> float:
    """Return the private memory of these processes together, MiB.

    Above `limit_mb`, memory that they share since a fork is counted once; that takes longer.
    """
    whole = sum(private_memory_mb(pid) for pid in pids)
    return whole if whole <= limit_mb or len(pids) < 2 else sum(_rollup_mb(pid, "Pss_Anon") for pid in pids)


def cpu_seconds(pid: int) -> float:
    """Return CPU time of the process and of the children it has waited for, seconds."""
    return sum(_cpu_ticks(pid)) / _TICKS_PER_S


def _cpu_ticks(pid: int) -> list[int]:
    """Return utime, stime, cutime and cstime; nothing when it is gone."""
    # The command's name is in parentheses and may contain spaces.
    return [int(value) for value in _read(pid, "stat").rpartition(")")[2].split()[11:15]]


def process_cpu_seconds(pid: int) -> float:
    """Return CPU time of all threads of the process, to the nanosecond; 0 for none, and when it is gone."""
    try:
        # What clock_getcpuclockid(3) makes of a process id, on Linux.
        return time.clock_gettime(~pid << 3 | 2) if pid else 0.0
    except OSError:
        return 0.0


def waited_cpu_seconds(pid: int) -> float:
    """Return CPU time of the children that the process has waited for, in hundredths of a second."""
    return sum(_cpu_ticks(pid)[2:]) / _TICKS_PER_S


def proportional_memory_mb(pid: int) -> float:
    """Return PSS in MiB: each page divided by the processes that share it. Slow (walks the page table)."""
    return _rollup_mb(pid, "Pss")


def _rollup_mb(pid: int, name: str) -> float:
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


class IdleCpu:
    """Share of the machine's CPU that was idle since the last look."""

    def __init__(self, every_s: float = 0.1, clock: Callable[[], float] = time.monotonic) -> None:
        """Look at most every `every_s` seconds: the kernel counts in hundredths of a second."""
        self._every_s = every_s
        self._clock = clock
        self._looked = clock()
        self._ticks = _machine_ticks()

    def __call__(self) -> float | None:
        """Return the share, 0 to 1; None when the last look was a moment ago, 1 where there is no /proc."""
        now = self._clock()
        if now - self._looked < self._every_s:
            return None
        before, self._ticks, self._looked = self._ticks, _machine_ticks(), now
        if self._ticks is None or before is None:
            return 1.0
        idle, total = (after - earlier for after, earlier in zip(self._ticks, before, strict=True))
        return idle / max(1, total)


def _machine_ticks() -> tuple[int, int] | None:
    """Return idle and all ticks of all cores since boot."""
    # cpu  user nice system idle iowait irq softirq steal
    ticks = [int(value) for value in _read("", "stat").partition("\n")[0].split()[1:9]]
    return (sum(ticks[3:5]), sum(ticks)) if ticks else None


def _read(pid: int | str, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
