"""The Lambda host: functions by name, each with its pool of execution environments."""

from __future__ import annotations

import asyncio
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from local.compute.cpu_share import CpuWatch
from local.compute.environment_variables import EnvironmentFactory, supervisor_environment
from local.compute.error_documents import MAX_REQUEST_BYTES, HostStopped, PayloadTooLarge
from local.compute.invocation import Invocation, LogTail
from local.compute.launcher import DEFAULT_PRELOAD, Launcher, LaunchMode
from local.compute.log_files import LogFiles, LogRecord
from local.compute.memory import MemoryWatch
from local.compute.pool import FunctionPool, FunctionStats, PoolLimits
from local.compute.process import HostContext
from local.compute.process_stats import IdleCpu
from local.compute.reload import CodeWatch, WatchedTree
from local.template.spec import FunctionSpec, InvokeResult

__all__ = [
    "FunctionStats",
    "HostOptions",
    "HostStopped",
    "LambdaHost",
    "LogRecord",
    "PayloadTooLarge",
    "PoolLimits",
]

_DRAIN_S = 0.05


@dataclass(frozen=True, slots=True)
class HostOptions:
    """Options of the host; the defaults are for normal use."""

    launcher: LaunchMode = "fork"
    """fork: environments share memory and import time of `preload`. exec: each starts a new interpreter."""
    preload: Sequence[str] = DEFAULT_PRELOAD
    """Third-party modules; the project's own are imported before the fork too, in each of their versions."""
    path_prefix: Sequence[Path] = ()
    """Folders before the function's own on the module path; a `sitecustomize` there is run."""
    limits: PoolLimits = field(default_factory=PoolLimits)
    init_timeout_s: float = 10.0
    enforce_memory: bool = True
    cpu_share: bool = False
    """Whether a function gets Lambda's share of CPU for its memory; otherwise all that there is."""
    idle_cpu: Callable[[], float | None] = field(default_factory=IdleCpu)
    """The machine's share of idle CPU lately, None when it was asked a moment ago."""
    hot_reload: bool = True
    watched_packages: Sequence[str] = ("indexmill",)
    """Packages of the project below a layer's `python/`, watched for changes; the rest is third-party."""
    on_log: Callable[[LogRecord], None] | None = None
    """Called with each log record as it comes; it must be quick and must not raise."""


class LambdaHost:
    """Runs functions as AWS Lambda does. Every method belongs to the event loop that called `start`."""

    def __init__(
        self,
        functions: Sequence[FunctionSpec],
        *,
        region: str,
        log_dir: Path,
        account_id: str = "000000000000",
        extra_environment: Mapping[str, str] | None = None,
        options: HostOptions | None = None,
    ) -> None:
        options = options or HostOptions()
        self.functions: dict[str, FunctionSpec] = {}
        self._given = functions
        self.region = region
        self.account_id = account_id
        self._options = options
        self._factory = EnvironmentFactory(
            region,
            account_id,
            dict(extra_environment or {}),
            tuple(Path(folder) for folder in options.path_prefix),
            tuple(options.watched_packages),
        )
        self._trees: dict[Path, WatchedTree] = {}
        self._launcher = Launcher(
            options.launcher,
            options.preload,
            supervisor_environment(),
            self._trees if options.hot_reload else None,
        )
        self._logs = LogFiles(log_dir, options.on_log)
        self._memory = MemoryWatch(enforced=options.enforce_memory)
        self._cpu = CpuWatch(enforced=options.cpu_share)
        self._context = HostContext(
            self._launcher, self._logs, self._factory, self._memory, self._cpu, options.idle_cpu
        )
        self._context.init_timeout_s = options.init_timeout_s
        self._scratch: Path | None = None
        """Made by `start`; only then is there something to delete."""
        self._pools: dict[str, FunctionPool] = {}
        self._canary: dict[str, FunctionPool] = {}
        """New versions by function name, for `_share` of the invocations."""
        self._share = 0.0
        self._draining: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Prepare to run functions; no environment starts before its first invocation."""
        self._scratch = self._context.scratch = Path(tempfile.mkdtemp(prefix="lambda-"))
        self.add(self._given)
        self._sweep()
        await self._launcher.start()

    def add(self, functions: Sequence[FunctionSpec], environments: Mapping[str, int] | None = None) -> None:
        """Register functions, also after `start`: their variables may be known later than the host.

        `environments` are limits by function name, in place of the host's.
        """
        for spec in functions:
            self._launcher.prepare(self._factory.packages_of(spec))
            most = (environments or {}).get(spec.name, self._options.limits.environments)
            self._use(self._pool(spec, most))

    def begin_canary(self, functions: Sequence[FunctionSpec], share: float) -> None:
        """Run `share` (0 to 1) of the invocations by new versions of functions, as a weighted alias does.

        Functions that are new altogether get all of theirs.
        """
        for spec in functions:
            known = self._pools.get(spec.name)
            most = known.limits.environments if known else self._options.limits.environments
            pool = self._pool(spec, most)
            if known:
                self._canary[spec.name] = pool
            else:
                self._use(pool)
        self._share = share

    def canary_errors(self) -> dict[str, int]:
        """Return how many invocations of each new version failed, where any did."""
        found = {name: pool.stats().errors for name, pool in self._canary.items()}
        return {name: errors for name, errors in found.items() if errors}

    def end_canary(self, *, promote: bool) -> None:
        """Run all invocations by the new versions, or none; the other ones finish those that they have."""
        canary, self._canary, self._share = self._canary, {}, 0.0
        for name, pool in canary.items():
            old = self._pools[name]
            if promote:
                self._use(pool)
            task = asyncio.get_running_loop().create_task(_drain(old if promote else pool))
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)

    def _pool(self, spec: FunctionSpec, environments: int) -> FunctionPool:
        options = self._options
        watch = CodeWatch(spec, options.watched_packages, self._trees) if options.hot_reload else None
        return FunctionPool(spec, self._context, replace(options.limits, environments=environments), watch)

    def _use(self, pool: FunctionPool) -> None:
        spec = pool.spec
        self.functions[spec.name] = spec
        self._pools[spec.name] = self._pools[spec.logical_id] = pool

    async def stop(self) -> None:
        """End every process and remove the scratch folders; logs stay."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        for task in self._draining:
            task.cancel()
        await asyncio.gather(*self._draining, return_exceptions=True)
        pools = {*self._pools.values(), *self._canary.values()}
        await asyncio.gather(*(pool.stop() for pool in pools))
        await self._launcher.stop()
        self._memory.stop()
        self._cpu.stop()
        self._logs.close()
        scratch, self._scratch, self._context.scratch = self._scratch, None, None
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    async def invoke(
        self, function: str, payload: bytes, *, trace_id: str | None = None, tail: LogTail | None = None
    ) -> InvokeResult:
        """Run `function` (logical id or name) once, synchronously; `tail` collects the end of its log.

        Raises `Throttled` when no execution environment may be started, KeyError for an unknown function,
        `PayloadTooLarge` over 6 MB, `HostStopped` when the host stops meanwhile. Every failure of the
        function is a result with `function_error`.
        """
        pool = self._pools[function]
        if self._canary and random.random() < self._share:  # noqa: S311 - a share of the traffic
            pool = self._canary.get(pool.spec.name, pool)
        if len(payload) > MAX_REQUEST_BYTES:
            raise PayloadTooLarge(f"{len(payload)} bytes exceed the limit of {MAX_REQUEST_BYTES} bytes")
        invocation = Invocation(payload, asyncio.get_running_loop().create_future(), tail, trace_id)
        pool.submit(invocation)
        try:
            return await invocation.result
        except asyncio.CancelledError:
            pool.withdraw(invocation)
            raise

    def update_environment(self, variables: Mapping[str, str]) -> None:
        """Change the variables of all functions; environments are replaced before their next invocation."""
        self._factory.extra.update(variables)
        for pool in set(self._pools.values()):
            pool.retire_all()

    def arn(self, function: str) -> str:
        """Return the ARN of a function; KeyError for an unknown one."""
        return self._factory.arn(self.spec(function))

    def spec(self, function: str) -> FunctionSpec:
        """Return the specification of a function by logical id or name; KeyError for an unknown one."""
        return self._pools[function].spec

    def knows(self, function: str) -> bool:
        """Return whether there is such a function, by logical id or name."""
        return function in self._pools

    def code_version(self, function: str) -> int | None:
        """Return a number that changes with the code of a function; None without hot reload."""
        return self._pools[function].code_version()

    def stats(self) -> dict[str, FunctionStats]:
        """Return counters by function name."""
        return {name: self._pools[name].stats() for name in self.functions}

    def listen(self, listener: Callable[[LogRecord], None]) -> None:
        """Call `listener` with each log record from now on; it must be quick and must not raise."""
        self._logs.listeners.append(listener)

    def flush_logs(self) -> None:
        """Write the buffered log records to disk."""
        self._logs.flush()

    @property
    def supervisor_pid(self) -> int:
        """The process that starts the environments; 0 when none runs."""
        return self._launcher.pid

    @property
    def warm_pids(self) -> list[int]:
        """The processes with the project's packages that environments are forked from."""
        return self._launcher.warm_pids

    @property
    def supervisor_starts(self) -> int:
        """Number of supervisor starts: more than one means that one died."""
        return self._launcher.starts

    def _sweep(self) -> None:
        for pool in {*self._pools.values(), *self._canary.values()}:
            pool.retire_idle()
        every = min(5.0, max(0.05, self._options.limits.idle_s / 2))
        self._sweeper = asyncio.get_running_loop().call_later(every, self._sweep)


async def _drain(pool: FunctionPool) -> None:
    """Stop a pool when its last invocation has ended, or at once when cancelled."""
    try:
        while (stats := pool.stats()).busy or stats.waiting:
            await asyncio.sleep(_DRAIN_S)
    finally:
        await pool.stop()
