"""Capacity: work of a job for each part, measured, and a simulation that has to agree with a steady load.

    python -m tests.perf.capacity [--pages DIR] [--rate 10] [--seconds 30] [--output FILE]

Three phases on one stack: one job at a time, all jobs at once, and single jobs at random moments, `--rate` a
second. The simulation knows the first two only; then it predicts the third from its moments of submission.
`tests/perf/limits.py` says what the figures mean on AWS.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.perf.database_load import DatabaseLoad, database_per_job
from tests.perf.figures import columns
from tests.perf.load import Driver, Sent, latencies
from tests.perf.machine import busy
from tests.perf.pipeline import LANES, Bench, costs, running_bench
from tests.perf.simulation import Machine, Outcome, Work, poisson, simulate

AGREES: Final = 0.15
_WORKERS: Final = {
    "scrape": "ScraperWorker",
    "chunk": "ChunkingWorker",
    "embed": "EmbeddingWorker",
    "results": "OrchestratorResults",
}
_API: Final = "OrchestratorApi"
_BATCHES: Final = {"scrape": 1, "chunk": 1, "embed": 1, "results": 3}
"""Batches of each worker for a batch of jobs."""
_DATABASE: Final = {"scrape": 0, "chunk": 0, "embed": 1, "results": 3}
_ENDPOINT_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Calibration:
    """The simulation's parameters, from one job at a time and from all at once."""

    works: Mapping[str, Work]
    critical: float


def main() -> None:
    """Measure, simulate, compare, print."""
    chosen = _arguments()
    load_before = round(os.getloadavg()[0], 2)
    with running_bench(chosen.pages, "stub", chosen.parameter) as (started, bench):
        measured = asyncio.run(_measure(bench, started.info, chosen))
    found = compare(measured)
    print("per job, all at once:", json.dumps(measured["database"], indent=1))
    print("\n".join(columns(["", "measured", "simulated", "apart"], [(row[0], row[1:]) for row in found])))
    print(*busy(load_before, {name: measured[name] for name in ("low", "saturation", "steady")}), sep="\n")
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(measured, indent=1) + "\n")


async def _measure(bench: Bench, info: Mapping[str, Any], chosen: argparse.Namespace) -> dict[str, Any]:
    result: dict[str, Any] = {}
    async with Driver(info, f"http://{bench.pages.address}", bench.pages.said["pages"]) as driver:
        await driver.one_at_a_time(driver.urls(10))
        warm = await driver.flood(driver.urls(200), 100, LANES)
        await driver.wait(list(warm.at), 120.0, 0.25)
        await _steady(driver, poisson(chosen.rate, 3))
        before = bench.reading()
        sent, done = await driver.one_at_a_time(driver.urls(chosen.low))
        result["low"] = {**latencies(sent, done), **costs(before, bench.reading(), chosen.low)}
        load = await asyncio.to_thread(DatabaseLoad.now, info["database_url"])
        before = bench.reading()
        sent = await driver.flood(driver.urls(chosen.jobs), 100, LANES)
        done = await driver.wait(list(sent.at), 300.0, 0.25)
        result["saturation"] = {**latencies(sent, done), **costs(before, bench.reading(), chosen.jobs)}
        after = await asyncio.to_thread(DatabaseLoad.now, info["database_url"])
        result["database"] = database_per_job(load, after, chosen.jobs)
        moments = poisson(chosen.rate, chosen.seconds)
        before = bench.reading()
        sent, done = await _steady(driver, moments)
        result["steady"] = {
            **latencies(sent, done),
            **costs(before, bench.reading(), len(moments)),
            "jobs_per_s": len(moments) / (max(done.values()) - min(sent.at.values())),
        }
        first = min(sent.at.values())
        result["moments"] = sorted(round(at - first, 4) for at in sent.at.values())
    return result


async def _steady(driver: Driver, moments: Sequence[float]) -> tuple[Sent, dict[str, float]]:
    sent = await driver.at_moments(driver.urls(len(moments)), moments)
    return sent, await driver.wait(list(sent.at), 60.0, 0.25)


def calibrate(low: Mapping[str, Any], saturation: Mapping[str, Any]) -> Calibration:
    """Return CPU of each worker as `fixed + each * n`, through one message and a full batch."""
    works = {}
    for worker, function in _WORKERS.items():
        batches = saturation["invocations_per_job"][function]
        messages = _BATCHES[worker] / batches
        alone = _cpu_s(low, worker, low["invocations_per_job"][function])
        full = _cpu_s(saturation, worker, batches)
        each = max(0.0, (full - alone) / (messages - 1))
        works[worker] = Work(max(0.0, alone - each), each, _ENDPOINT_S if worker == "embed" else 0.0)
    shared = _shared(low) / 7 + _of(low, "postgres") / 5
    works["submit"] = Work(_of(low, f"function:{_API}") + shared, 0.0)
    # What one job waits beside its CPU is the same at each of its seven steps.
    cpu = sum(work.cpu(1) * _BATCHES.get(name, 1) for name, work in works.items())
    alone_s = low["p50_ms"] / 1e3 - _ENDPOINT_S
    waits = max(0.0, alone_s - cpu) / 7
    works = {name: Work(work.fixed, work.each, work.outside + waits) for name, work in works.items()}
    return Calibration(works, min(1.0, alone_s / cpu))


def predict(measured: Mapping[str, Any]) -> Outcome:
    """Simulate the steady phase among the other processes that were there."""
    steady = measured["steady"]
    found = calibrate(measured["low"], measured["saturation"])
    generator = steady["load_generator_cpu_ms_per_job"] / 1e3 * steady["jobs_per_s"]
    others = steady["other_cores"] + steady["stolen_cores"] + generator
    cores = os.cpu_count() or 1
    machine = Machine(cores, others, found.critical, at_once=max(2, cores))
    return simulate(found.works, machine, measured["moments"])


def compare(measured: Mapping[str, Any]) -> list[tuple[str, float, float, str]]:
    """Return rows of the steady phase: its name, measured, simulated, and how far apart they are."""
    steady, outcome = measured["steady"], predict(measured)
    jobs = len(measured["moments"])
    calls = steady["invocations_per_job"]
    stand_ins = steady["stand_in_cpu_ms_per_job"]
    rows = [
        ("jobs / s", steady["jobs_per_s"], jobs / outcome.wall_s),
        ("latency p50 ms", steady["p50_ms"], outcome.latency(0.5) * 1e3),
        ("latency p95 ms", steady["p95_ms"], outcome.latency(0.95) * 1e3),
        ("CPU-ms / job, stand-ins too", steady["cpu_ms_per_job"] + stand_ins, outcome.cpu_s / jobs * 1e3),
    ]
    rows += [
        (f"invocations / job: {function}", calls[function], outcome.invocations[worker] / jobs)
        for worker, function in _WORKERS.items()
    ]
    return [
        (title, round(real, 2), round(simulated, 2), f"{simulated / real - 1:+.0%}")
        for title, real, simulated in rows
    ]


def _cpu_s(phase: Mapping[str, Any], worker: str, invocations: float) -> float:
    """Return the CPU of one invocation with all that it causes, seconds."""
    own = _of(phase, f"function:{_WORKERS[worker]}")
    steps = _shared(phase) * _BATCHES[worker] / 7
    database = _of(phase, "postgres") * _DATABASE[worker] / 5
    return (own + steps + database) / invocations


def _shared(phase: Mapping[str, Any]) -> float:
    """Return CPU of a job that no function and no statement has: host, emulator, stand-ins; seconds."""
    components = phase["cpu_ms_by_component"]
    others = [ms for name, ms in components.items() if name != "postgres" and not _is_counted(name)]
    return float(sum(others) + phase["stand_in_cpu_ms_per_job"]) / 1e3


def _is_counted(component: str) -> bool:
    return component in {f"function:{name}" for name in (*_WORKERS.values(), _API)}


def _of(phase: Mapping[str, Any], component: str) -> float:
    return float(phase["cpu_ms_by_component"].get(component, 0.0)) / 1e3


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--pages", type=Path, metavar="DIR", help="HTML pages; default: the built-in site's")
    parser.add_argument("--rate", type=float, default=10.0, help="jobs a second")
    parser.add_argument("--seconds", type=float, default=30.0, help="of the steady load")
    parser.add_argument("--jobs", type=int, default=800, help="jobs at once")
    parser.add_argument("--low", type=int, default=40, help="jobs one at a time")
    parser.add_argument("--parameter", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
