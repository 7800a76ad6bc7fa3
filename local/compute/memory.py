"""Memory limits of environments with an invocation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from local.compute.process_stats import process_groups

_INTERVAL_S = 0.1


Groups = Mapping[int, Sequence[int]]
"""Pids by process group."""


class Watched(Protocol):
    """Process that can measure its own memory."""

    def check_memory(self, groups: Groups) -> None:
        """Measure the process with its children, and act above the limit."""


class MemoryWatch:
    """One timer for the whole host; stopped while there is nothing to watch."""

    def __init__(self, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: Watched) -> None:
        """Start watching."""
        self._watched.add(item)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._tick)

    def discard(self, item: Watched) -> None:
        """Stop watching."""
        self._watched.discard(item)

    def stop(self) -> None:
        """Stop watching everything."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        groups = process_groups() if self._watched else {}
        for item in list(self._watched):
            item.check_memory(groups)
        if self._watched and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._tick)
