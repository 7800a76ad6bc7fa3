"""Watches the memory of environments that work on something, and of no other."""

from __future__ import annotations

import asyncio
from typing import Protocol

_INTERVAL_S = 0.1


class Watched(Protocol):
    """Something that can look at its own memory."""

    def check_memory(self) -> None:
        """Measure, and act on too much."""


class MemoryWatch:
    """One timer for the whole host, which stands still while nothing runs."""

    def __init__(self, *, enforced: bool = True) -> None:
        self.enforced = enforced
        self._watched: set[Watched] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, item: Watched) -> None:
        """Watch from now on."""
        self._watched.add(item)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._tick)

    def discard(self, item: Watched) -> None:
        """Watch no longer."""
        self._watched.discard(item)

    def stop(self) -> None:
        """Forget everything."""
        self._watched.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        for item in list(self._watched):
            item.check_memory()
        if self._watched and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._tick)
