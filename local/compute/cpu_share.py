"""CPU of environments with an invocation: Lambda's share by memory, for a process group together.

No control group is needed, nor a privilege: a group that has used up its budget is stopped (SIGSTOP) until it
has some again. Lambda's kernel does that by CFS bandwidth control, exactly and 20 ms at a time. Here the
groups are looked at every 5 ms, and what one used too much is taken from what it gets next: the mean is the
same, the pieces are longer. Time of stops is time of the invocation, so time-outs come sooner, as on Lambda.

Not limited: initialisation, for which Lambda lends CPU; what runs between invocations; processes that left
the group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Final, Protocol

from local.compute.process_stats import process_cpu_seconds, process_groups, waited_cpu_seconds

_MB_PER_CORE: Final = 1769
_PERIOD_S: Final = 0.02
_TICK_S: Final = 0.005
_TICKS_PER_SEARCH: Final = 20
"""New processes of a group are found after so many; what they have used by then counts."""
_CORES: Final = os.cpu_count() or 1


class Group(Protocol):
    """Process group that can be signalled."""

    @property
    def pid(self) -> int:
        """Id of the group; 0 when it does not run."""

    def signal(self, number: int) -> None:
        """Signal all its processes."""


class CpuBudget:
    """CPU time that one process group may use now; at most a period's share while it does not use it."""

    def __init__(self, memory_mb: float, group: Group) -> None:
        self._share = memory_mb / _MB_PER_CORE
        self._group = group
        self._left_s = self._most_s = self._share * _PERIOD_S
        self._members: Sequence[int] = ()
        self._waited_s = 0.0
        self._used_s = 0.0
        self._searched = 0.0
        self._at = 0.0
        self._stopped = False

    @property
    def pid(self) -> int:
        """Id of the group."""
        return self._group.pid

    def begin(self) -> None:
        """Account from now on; stops the group at once if it used too much before."""
        self._searched = time.monotonic()
        self._used_s = self._measure(anew=True)
        self._refill()
        self._act()

    def check(self, members: Sequence[int] | None) -> None:
        """Account since the last check, and stop or resume the group; `members` if it was searched for."""
        if members is not None:
            self._members = members
        self._spend(anew=members is not None)
        self._refill()
        self._act()

    def end(self) -> None:
        """Account for the last time and let the group run."""
        self._spend(anew=True)
        self._resume()

    def _measure(self, *, anew: bool) -> float:
        """Return the CPU time of the members, and of processes they have waited for as it was read `anew`."""
        members = self._members or (self._group.pid,)
        if anew:
            self._waited_s = sum(map(waited_cpu_seconds, members))
        return self._waited_s + sum(map(process_cpu_seconds, members))

    def _spend(self, *, anew: bool) -> None:
        # Less than before when a process has ended, until those that waited for it are read.
        used = max(self._used_s, self._measure(anew=anew))
        # A member that is found only now may be older than this invocation.
        possible = _CORES * (time.monotonic() - self._searched)
        self._left_s -= min(used - self._used_s, possible)
        self._used_s = used
        if anew:
            self._searched = time.monotonic()

    def _refill(self) -> None:
        now = time.monotonic()
        gained, self._at = (now - self._at) * self._share, now
        # A stopped group gets all of it, however late this is called.
        self._left_s = self._left_s + gained if self._stopped else min(self._most_s, self._left_s + gained)

    def _act(self) -> None:
        if self._left_s > 0:
            self._resume()
        elif not self._stopped:
            self._stopped = True
            self._group.signal(signal.SIGSTOP)

    def _resume(self) -> None:
        if self._stopped:
            self._stopped = False
            self._group.signal(signal.SIGCONT)


class CpuWatch:
    """One timer for the whole host; there is none while there is nothing to limit."""

    def __init__(self, *, enforced: bool = False) -> None:
        self._enforced = enforced
        self._watched: set[CpuBudget] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._ticks = 0

    def add(self, budget: CpuBudget) -> None:
        """Start limiting."""
        if not self._enforced:
            return
        self._watched.add(budget)
        budget.begin()
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)

    def discard(self, budget: CpuBudget) -> None:
        """Stop limiting; the group is not stopped any more."""
        if budget in self._watched:
            self._watched.discard(budget)
            budget.end()

    def stop(self) -> None:
        """Stop limiting everything."""
        for budget in list(self._watched):
            self.discard(budget)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self._timer = None
        self._ticks += 1
        groups = process_groups() if self._watched and self._ticks % _TICKS_PER_SEARCH == 0 else None
        for budget in self._watched:
            budget.check(None if groups is None else groups.get(budget.pid, ()))
        if self._watched:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
