"""Benchmark of a job from URL to searchable chunks: throughput, latency, CPU by component.

    python -m tests.perf.pipeline --pages DIR [--jobs 2000] [--low 60] [--batch 100] [--output FILE]

DIR holds HTML pages, which the stack's own web site serves. Low load is one job at a time; saturation pushes
all jobs through eight connections as fast as they are accepted. Latency ends, by the database's clock, when a
job is done. Each job has to end `done` with chunks, or there are no figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.perf.accounting import Accountant, Snapshot, difference, own_memory
from tests.perf.init_times import init_times
from tests.perf.load import Driver, accept_p50_ms, latencies, own_cpu_s
from tests.perf.stack_under_test import StartedStack, embedding_stub, stack
from tests.perf.warm_get import measure_in_own_process

LANES: Final = 8
_WARM_ONE_BY_ONE: Final = 10
_WARM_TOGETHER: Final = 400
_IDLE_S: Final = 5.0


def main() -> None:
    """Run what was asked for, print and write the figures."""
    chosen = _arguments()
    result = run(chosen)
    text = json.dumps(result, indent=1)
    print(text)
    if chosen.output is not None:
        chosen.output.write_text(text + "\n")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """All figures as one document."""
    pages = sorted(each.name for each in chosen.pages.glob("*.htm*"))
    if not pages:
        raise SystemExit(f"{chosen.pages} holds no HTML pages")
    with ExitStack() as resources:
        parameters = list(chosen.parameter)
        if chosen.embeddings == "stub":
            parameters += resources.enter_context(embedding_stub())
        started = resources.enter_context(stack(chosen.pages, parameters))
        return asyncio.run(_measure(started, pages, chosen))


async def _measure(started: StartedStack, pages: Sequence[str], chosen: argparse.Namespace) -> dict[str, Any]:
    accountant = Accountant(started.info)
    result: dict[str, Any] = {
        "pages": len(pages),
        "embeddings": chosen.embeddings,
        "batch": chosen.batch,
        "load_before": os.getloadavg()[0],
        "ready_s": round(started.ready_s, 2),
    }
    async with Driver(started.info, pages) as driver:
        result["first_job"] = latencies(*await driver.one_at_a_time(1))["p50_ms"]
        await driver.one_at_a_time(_WARM_ONE_BY_ONE)
        result["idle"] = await _idle(accountant)
        result["low"] = await _low(driver, accountant, chosen.low)
        warm = await driver.flood(_WARM_TOGETHER, chosen.batch, LANES)
        await driver.wait(list(warm.at), 120.0, 0.25)
        result["saturation"] = await _saturation(driver, accountant, chosen.jobs, chosen.batch)
        memory = accountant.memory()
        result["memory_pss_mb"] = {
            "own": own_memory(memory),
            **memory,
            "processes": accountant.process_count(),
        }
        result["chunks"] = driver.chunk_total()
    if not chosen.no_functions:
        result["warm_get_us"] = measure_in_own_process()
        result["init_ms"] = await init_times(started.info, 5)
    return result


async def _idle(accountant: Accountant) -> dict[str, Any]:
    """Return what the idle stack uses."""
    before = accountant.snapshot()
    await asyncio.sleep(_IDLE_S)
    figures = difference(before, accountant.snapshot(), 1)
    return {name: figures[name] for name in ("own_cores", "cpu_ms_by_component", "wall_s")}


async def _low(driver: Driver, accountant: Accountant, jobs: int) -> dict[str, Any]:
    before, generator = accountant.snapshot(), own_cpu_s()
    sent, done = await driver.one_at_a_time(jobs)
    return {
        "jobs": jobs,
        **latencies(sent, done),
        "accept_p50_ms": accept_p50_ms(sent),
        **_costs(before, accountant.snapshot(), jobs, generator),
    }


async def _saturation(driver: Driver, accountant: Accountant, jobs: int, batch: int) -> dict[str, Any]:
    before, generator = accountant.snapshot(), own_cpu_s()
    began = time.monotonic()
    sent = await driver.flood(jobs, batch, LANES)
    submitted = time.monotonic() - began
    done = await driver.wait(list(sent.at), 120.0 + jobs * 0.2, 0.25)
    after = accountant.snapshot()
    wall = max(done.values()) - min(sent.at.values())
    return {
        "jobs": jobs,
        "jobs_per_min": round(jobs / wall * 60),
        "submit_s": round(submitted, 2),
        "refused": sent.refused,
        **latencies(sent, done),
        "accept_p50_ms": accept_p50_ms(sent),
        **_costs(before, after, jobs, generator),
    }


def _costs(before: Snapshot, after: Snapshot, jobs: int, generator: float) -> dict[str, Any]:
    return {
        **difference(before, after, jobs),
        "load_generator_cpu_ms_per_job": round((own_cpu_s() - generator) / jobs * 1e3, 2),
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    return parser.parse_args()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what is measured."""
    parser.add_argument("--pages", type=Path, required=True, metavar="DIR", help="a folder of HTML pages")
    parser.add_argument("--jobs", type=int, default=2000, help="jobs at saturation")
    parser.add_argument("--low", type=int, default=60, help="jobs one at a time")
    parser.add_argument("--batch", type=int, default=100, help="URLs per submit, 1 to 100")
    parser.add_argument(
        "--embeddings",
        choices=("stub", "model"),
        default="stub",
        help="384 dimensions after 5 ms, or the real model",
    )
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="KEY=VALUE", help="of template.yaml"
    )
    parser.add_argument("--no-functions", action="store_true", help="leave out warm GET and init times")


if __name__ == "__main__":
    main()
