"""Benchmark of initialisation: from the start of an environment until it requests its first event.

    python -m tests.perf.init_times [--repeats 30]

Prints the CPU of the start of each function's environment: forked from a process with third-party modules
alone, forked from one that has the project's packages too, in turns, and by a new interpreter.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from local.compute.cpu_share import CpuWatch
from local.compute.environment import ExecutionEnvironment, InitError
from local.compute.environment_variables import base_environment, supervisor_environment
from local.compute.invocation import Invocation
from local.compute.launcher import DEFAULT_PRELOAD, Launcher
from local.compute.log_files import LogFiles
from local.compute.memory import MemoryWatch
from local.compute.process import HostContext
from local.compute.process_stats import IdleCpu, process_cpu_seconds
from local.template.spec import FunctionSpec
from tests.perf.cloud_functions import factory_of, functions_of
from tests.perf.machine import Watch
from tests.perf.stack_under_test import stack

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
            self.outcome.set_result((environment.init_ms, process_cpu_seconds(environment.pid) * 1e3))


async def init_times(info: Mapping[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Medians by function, milliseconds: `wall_ms` and `cpu_ms` of a fresh interpreter, nothing preloaded."""
    found = {}
    launcher = Launcher("exec", (), base_environment())
    try:
        with _context(info, launcher) as context:
            for spec in functions_of(info):
                times = [await _one(spec, context) for _ in range(repeats)]
                walls, cpus = zip(*times, strict=True)
                found[spec.logical_id] = {"wall_ms": _median(walls), "cpu_ms": _median(cpus)}
    finally:
        await launcher.stop()
    return found


async def fork_times(info: Mapping[str, Any], repeats: int) -> dict[str, dict[str, float]]:
    """Medians by function, CPU in milliseconds: `third_party`, `warm`, and the ratio of both."""
    found = {}
    launcher = Launcher("fork", DEFAULT_PRELOAD, supervisor_environment())
    try:
        with _context(info, launcher) as plain, _context(info, launcher, "indexmill") as warm:
            for spec in functions_of(info):
                pairs = [(await _one(spec, plain), await _one(spec, warm)) for _ in range(repeats)]
                before, after = (_median([pair[at][1] for pair in pairs]) for at in (0, 1))
                found[spec.logical_id] = {
                    "third_party": before,
                    "warm": after,
                    "ratio": round(after / before, 2),
                    "warm_wall": _median([pair[1][0] for pair in pairs]),
                }
    finally:
        await launcher.stop()
    return found


@contextmanager
def _context(info: Mapping[str, Any], launcher: Launcher, *packages: str) -> Iterator[HostContext]:
    with tempfile.TemporaryDirectory(prefix="indexmill-perf-") as folder:
        logs = LogFiles(Path(folder) / "logs")
        factory = replace(factory_of(info), packages=packages)
        context = HostContext(launcher, logs, factory, MemoryWatch(enforced=False), CpuWatch(), IdleCpu())
        context.scratch = Path(folder) / "scratch"
        context.init_timeout_s = _LIMIT_S
        try:
            yield context
        finally:
            logs.close()


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 1)


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


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=30)
    repeats = parser.parse_args().repeats
    watch = Watch()
    with stack(()) as started:
        forked = asyncio.run(fork_times(started.info, repeats))
        executed = asyncio.run(init_times(started.info, 3))
    for name, figures in forked.items():
        print(json.dumps({"function": name, **figures, "new interpreter": executed[name]["cpu_ms"]}))
    print("\n".join(watch.lines()))


if __name__ == "__main__":
    main()
