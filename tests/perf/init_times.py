"""Benchmark of initialisation: time from the start of an interpreter until it requests its first event."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from local.compute.cpu_share import CpuWatch
from local.compute.environment import ExecutionEnvironment, InitError
from local.compute.environment_variables import base_environment
from local.compute.invocation import Invocation
from local.compute.launcher import Launcher
from local.compute.log_files import LogFiles
from local.compute.memory import MemoryWatch
from local.compute.process import HostContext
from local.compute.process_stats import IdleCpu
from local.template.spec import FunctionSpec
from tests.perf.cloud_functions import factory_of, functions_of

_LIMIT_S: Final = 30.0


class InitFailed(RuntimeError):
    """A function did not get ready; the text is what its runtime reported."""


class _Waiting:
    """Takes the place of the pool: an environment that is ready is measured and gets no event."""

    def __init__(self) -> None:
        self.outcome: asyncio.Future[tuple[float, float]] = asyncio.get_running_loop().create_future()

    def ready(self, environment: ExecutionEnvironment) -> None:
        self._settle(environment)

    def free(self, environment: ExecutionEnvironment) -> None:
        """Nothing is ever assigned."""

    def ended(
        self, environment: ExecutionEnvironment, init_error: InitError | None, unsent: Invocation | None
    ) -> None:
        if not self.outcome.done():
            reason = init_error("init")[:2000].decode() if init_error is not None else "it ended"
            self.outcome.set_exception(InitFailed(reason))

    def finished(self, failed: bool) -> None:
        """Nothing is ever assigned."""

    def _settle(self, environment: ExecutionEnvironment) -> None:
        if not self.outcome.done():
            self.outcome.set_result((environment.init_ms, environment.cpu_seconds() * 1e3))


async def init_times(info: Mapping[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Medians by function, milliseconds: `wall_ms` and `cpu_ms` of a fresh interpreter, nothing preloaded."""
    launcher = Launcher("exec", (), base_environment())
    found = {}
    with tempfile.TemporaryDirectory(prefix="indexmill-perf-") as folder:
        logs = LogFiles(Path(folder) / "logs")
        memory = MemoryWatch(enforced=False)
        context = HostContext(launcher, logs, factory_of(info), memory, CpuWatch(), IdleCpu())
        context.scratch = Path(folder) / "scratch"
        context.init_timeout_s = _LIMIT_S
        try:
            for spec in functions_of(info):
                times = [await _one(spec, context) for _ in range(repeats)]
                walls, cpus = zip(*times, strict=True)
                found[spec.logical_id] = {
                    "wall_ms": round(statistics.median(walls), 1),
                    "cpu_ms": round(statistics.median(cpus), 1),
                }
        finally:
            await launcher.stop()
            logs.close()
    return found


async def _one(spec: FunctionSpec, context: HostContext) -> tuple[float, float]:
    waiting = _Waiting()
    environment = ExecutionEnvironment(spec, waiting, context, 0)
    await environment.start()
    try:
        return await asyncio.wait_for(waiting.outcome, _LIMIT_S + 5)
    except InitFailed as error:
        raise InitFailed(f"{spec.logical_id}: {error}") from error
    finally:
        await environment.stop()
