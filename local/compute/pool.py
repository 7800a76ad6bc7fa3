"""Execution environments of one function: assignment of invocations, start and end of environments."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Final

from local.compute.environment import ExecutionEnvironment, InitError
from local.compute.error_documents import HostStopped
from local.compute.invocation import Invocation
from local.compute.process import HostContext
from local.compute.reload import CodeWatch
from local.template.spec import FunctionSpec, Throttled

_IDLE: Final = 0.2
"""Share of all cores that has to be idle for one environment more, as for an event source mapping."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Limits of each function."""

    environments: int = 16
    waiting: int = 1000
    idle_s: float = 60.0
    """An environment beyond the first ends after this idle time, seconds."""
    busy_wait_s: float = 0.1
    """How long an invocation waits, while no CPU is idle, for an environment that is busy, seconds."""


@dataclass(slots=True)
class FunctionStats:
    """Counters of one function since the host started."""

    environments: int = 0
    busy: int = 0
    waiting: int = 0
    cold_starts: int = 0
    invocations: int = 0
    errors: int = 0
    throttles: int = 0
    init_ms_total: float = 0.0
    init_ms_max: float = 0.0
    cpu_s: float = 0.0


class FunctionPool:
    """Last in, first out: the warmest environment is used, the others may become idle and end.

    There is one environment more for an invocation that waits while CPU is idle, or for which it waited long.

    A waiting invocation goes to the environment that is ready first, a new one or one that becomes free.
    """

    def __init__(
        self, spec: FunctionSpec, context: HostContext, limits: PoolLimits, watch: CodeWatch | None
    ) -> None:
        self.spec = spec
        self._context = context
        self.limits = limits
        self._watch = watch
        self._version = 0
        self._environments: set[ExecutionEnvironment] = set()
        self._starting: set[ExecutionEnvironment] = set()
        self._idle: list[ExecutionEnvironment] = []
        self._leaving: set[ExecutionEnvironment] = set()
        self._waiting: deque[Invocation] = deque()
        self._in_flight = 0
        self._stats = FunctionStats()
        self._tasks: set[asyncio.Task[None]] = set()
        self._growth: asyncio.TimerHandle | None = None
        """When the wait of an invocation ends for which no environment was started."""
        self._stopped = False

    def submit(self, invocation: Invocation) -> None:
        """Accept an invocation, whose future is resolved later. Raises `Throttled`."""
        if self._stopped:
            raise HostStopped(self.spec.name)
        self._check_code()
        reserved = self.spec.reserved_concurrency
        full = not self._idle and len(self._environments) >= self.limits.environments
        if (reserved is not None and self._in_flight >= reserved) or (
            full and len(self._waiting) >= self.limits.waiting
        ):
            self._stats.throttles += 1
            raise Throttled(self.spec.name)
        self._in_flight += 1
        self._waiting.append(invocation)
        self._pump()

    def withdraw(self, invocation: Invocation) -> None:
        """Drop a waiting invocation whose caller gave up; as on AWS, one that was started continues."""
        if invocation in self._waiting:
            self._waiting.remove(invocation)
            self._in_flight -= 1

    def code_version(self) -> int | None:
        """Return a number that grows with each change of the code; None where changes are not watched."""
        return None if self._watch is None else self._watch.version()

    def retire_idle(self) -> None:
        """End the environments that were idle for too long, except one."""
        before = time.monotonic() - self.limits.idle_s
        while self._idle and len(self._environments) > 1 and self._idle[0].free_since < before:
            self._retire(self._idle.pop(0))

    def retire_all(self) -> None:
        """Replace every environment before its next invocation."""
        self._version += 1 << 32  # far above any count of changes
        self._drop_stale()

    def stats(self) -> FunctionStats:
        """Return the current counters."""
        stats = self._stats
        stats.environments = len(self._environments)
        stats.busy = sum(environment.busy for environment in self._environments)
        stats.waiting = len(self._waiting)
        alive = sum(environment.cpu_seconds() for environment in self._environments | self._leaving)
        fields = {name: getattr(stats, name) for name in FunctionStats.__slots__}
        return FunctionStats(**fields | {"cpu_s": stats.cpu_s + alive})

    async def stop(self) -> None:
        """End all environments; waiting invocations fail."""
        self._stopped = True
        while self._waiting:
            self._waiting.popleft().fail(HostStopped(self.spec.name))
        self._idle.clear()
        await asyncio.gather(*(environment.stop() for environment in self._environments | self._leaving))
        if self._tasks:
            await asyncio.wait(self._tasks)

    # Owner:

    def ready(self, environment: ExecutionEnvironment) -> None:
        """Use a started environment."""
        self._starting.discard(environment)
        self._stats.cold_starts += 1
        self._stats.init_ms_total += environment.init_ms
        self._stats.init_ms_max = max(self._stats.init_ms_max, environment.init_ms)
        self.free(environment)

    def free(self, environment: ExecutionEnvironment) -> None:
        """Use an environment again, unless its code is outdated."""
        if self._stopped or not environment.usable or environment.code_version != self._version:
            self._retire(environment)
        else:
            environment.free_since = time.monotonic()
            self._idle.append(environment)
        self._pump()

    def ended(
        self, environment: ExecutionEnvironment, init_error: InitError | None, unsent: Invocation | None
    ) -> None:
        """Handle an environment that ended by itself."""
        self._remove(environment)
        self._run(self._stop_environment(environment))
        if unsent is not None and self._stopped:
            unsent.fail(HostStopped(self.spec.name))
        elif unsent is not None:
            self._waiting.appendleft(unsent)
        elif environment in self._starting and init_error is not None and self._waiting:
            invocation = self._waiting.popleft()
            self.finished(failed=True)
            document = init_error(invocation.request_id)
            environment.failed_for(invocation, document)
            invocation.resolve(document, "Unhandled", import_failed=True)
        self._starting.discard(environment)
        self._pump()

    def finished(self, failed: bool) -> None:
        """Count one invocation that ended."""
        self._in_flight -= 1
        self._stats.invocations += 1
        self._stats.errors += failed

    def _pump(self) -> None:
        while self._waiting and self._idle:
            self._idle.pop().assign(self._waiting.popleft())
        while (
            not self._stopped
            and len(self._waiting) > len(self._starting)
            and len(self._environments) < self.limits.environments
            and self._may_grow()
        ):
            environment = ExecutionEnvironment(self.spec, self, self._context, self._version)
            self._environments.add(environment)
            self._starting.add(environment)
            self._run(environment.start())

    def _may_grow(self) -> bool:
        """Return whether to start one for the next invocation that waits; if not yet, look again later."""
        if self._growth is not None:
            self._growth.cancel()
        if not any(environment.code_version == self._version for environment in self._environments):
            return True
        waited = time.monotonic() - self._waiting[len(self._starting)].submitted_at
        idle = self._context.idle_cpu()
        if waited >= self.limits.busy_wait_s or (idle is not None and idle >= _IDLE):
            return True
        loop = asyncio.get_running_loop()
        self._growth = loop.call_later(self.limits.busy_wait_s - waited, self._pump)
        return False

    def _check_code(self) -> None:
        if self._watch is None:
            return
        version = self._watch.version() + (self._version >> 32 << 32)
        if version != self._version:
            self._version = version
            self._drop_stale()

    def _drop_stale(self) -> None:
        stale = [environment for environment in self._idle if environment.code_version != self._version]
        self._idle = [environment for environment in self._idle if environment.code_version == self._version]
        for environment in stale:
            self._retire(environment)

    def _retire(self, environment: ExecutionEnvironment) -> None:
        self._remove(environment)
        self._run(self._stop_environment(environment))

    def _remove(self, environment: ExecutionEnvironment) -> None:
        self._environments.discard(environment)
        if environment in self._idle:
            self._idle.remove(environment)
        self._leaving.add(environment)

    async def _stop_environment(self, environment: ExecutionEnvironment) -> None:
        await environment.stop()
        self._leaving.discard(environment)
        self._stats.cpu_s += environment.cpu_seconds()

    def _run(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
