"""Process figures from /proc; all zero where there is no /proc."""

from __future__ import annotations

import os
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def private_memory_mb(pid: int) -> float:
    """Return resident memory that is not backed by files, MiB."""
    fields = _read(pid, "statm").split()
    return (int(fields[1]) - int(fields[2])) * _PAGE_BYTES / (1 << 20) if fields else 0.0


def cpu_seconds(pid: int) -> float:
    """Return CPU time of the process and of the children it has waited for, seconds."""
    # The command's name is in parentheses and may contain spaces.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return sum(int(value) for value in fields[11:15]) / _TICKS_PER_S if fields else 0.0


def proportional_memory_mb(pid: int) -> float:
    """Return PSS in MiB: each page divided by the processes that share it. Slow (walks the page table)."""
    for line in _read(pid, "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
