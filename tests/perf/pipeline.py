"""Benchmark of a job from URL to searchable chunks: throughput, latency, CPU by component, requests to AWS.

    python -m tests.perf.pipeline [--pages DIR] [--jobs 2000] [--low 60] [--batch 100] [--output FILE]

DIR holds HTML pages; without it they are those of the built-in site. A page server puts the round into every
paragraph, so no page and no chunk occurs twice. Low load is one job at a time; saturation pushes all jobs
through eight connections as fast as they are accepted; then the same pages are indexed again, unchanged.
Latency ends, by the database's clock, when a job is done. Each job has to end `done` with chunks, or there
are no figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.perf.accounting import Accountant, Snapshot, difference, own_memory
from tests.perf.aws_requests import Counts, per_job, read_counts
from tests.perf.figures import table
from tests.perf.init_times import init_times
from tests.perf.load import Driver, Sent, accept_p50_ms, latencies
from tests.perf.stack_under_test import (
    Outside,
    StartedStack,
    embedding_parameters,
    embedding_stub,
    page_parameters,
    page_server,
    stack,
)
from tests.perf.warm_get import measure_in_own_process

LANES: Final = 8
_WARM_ONE_BY_ONE: Final = 10
_WARM_TOGETHER: Final = 400
_IDLE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A started stack with what is around it."""

    info: Mapping[str, Any]
    pages: Outside
    stub: Outside | None
    accountant: Accountant

    def reading(self) -> Reading:
        """Return all counters, now."""
        return Reading(self.accountant.snapshot(), read_counts(self.info["aws_endpoint"]), self.embedded())

    def embedded(self) -> int | None:
        """Return how many texts the stub has embedded; None without it."""
        if self.stub is None:
            return None
        with urllib.request.urlopen(f"http://{self.stub.address}/control", timeout=10) as answer:
            return int(json.load(answer)["texts"])


@dataclass(frozen=True, slots=True)
class Reading:
    """All counters at one moment."""

    used: Snapshot
    requests: Counts
    embedded: int | None


def main() -> None:
    """Run what was asked for, print the table of figures, write them all."""
    chosen = _arguments()
    result = run(chosen)
    print(table(result))
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(result, indent=1) + "\n")


def run(chosen: argparse.Namespace) -> dict[str, Any]:
    """All figures as one document."""
    load_before = round(os.getloadavg()[0], 2)
    options = [*(["--eager-polling"] if chosen.eager_polling else []), f"--pollers={chosen.pollers}"]
    with running_bench(chosen.pages, chosen.embeddings, chosen.parameter, *options) as (started, bench):
        return {"load_before": load_before} | asyncio.run(_measure(bench, started, chosen))


@contextmanager
def running_bench(
    folder: Path | None, embeddings: str, parameters: Sequence[str], *options: str
) -> Iterator[tuple[StartedStack, Bench]]:
    """Run a stack that indexes the pages of `folder`, with the `stub` or the real `model` for embeddings.

    `options` are those of `indexmill up`.
    """
    with ExitStack() as resources:
        pages = resources.enter_context(page_server(folder))
        if not pages.said["pages"]:
            raise SystemExit(f"{folder} holds no HTML pages with text")
        given = [*page_parameters(pages), *parameters]
        stub, outside = None, {"pages": pages.pid}
        if embeddings == "stub":
            stub = resources.enter_context(embedding_stub())
            given += embedding_parameters(stub)
            outside["vectors"] = stub.pid
        started = resources.enter_context(stack(given, *options))
        yield started, Bench(started.info, pages, stub, Accountant(started.info, outside))


async def _measure(bench: Bench, started: StartedStack, chosen: argparse.Namespace) -> dict[str, Any]:
    names = bench.pages.said["pages"]
    result: dict[str, Any] = {
        "pages": len(names),
        "embeddings": chosen.embeddings,
        "batch": chosen.batch,
        "ready_s": round(started.ready_s, 2),
    }
    async with Driver(started.info, f"http://{bench.pages.address}", names) as driver:
        result["first_job"] = latencies(*await driver.one_at_a_time(driver.urls(1)))["p50_ms"]
        await driver.one_at_a_time(driver.urls(_WARM_ONE_BY_ONE))
        result["idle"] = await _idle(bench.accountant)
        result["low"] = await _low(bench, driver, chosen.low)
        warm = await driver.flood(driver.urls(_WARM_TOGETHER), chosen.batch, LANES)
        await driver.wait(list(warm.at), 120.0, 0.25)
        urls = driver.urls(chosen.jobs)
        result["saturation"] = await _saturation(bench, driver, urls, chosen.batch)
        if chosen.unchanged:
            again, driver.force = urls[: chosen.unchanged], False
            result["unchanged"] = await _saturation(bench, driver, again, chosen.batch)
        memory = bench.accountant.memory()
        result["memory_pss_mb"] = {
            "own": own_memory(memory),
            **memory,
            "processes": bench.accountant.process_count(),
        }
        result["chunks"] = driver.chunk_counts()
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


async def _low(bench: Bench, driver: Driver, jobs: int) -> dict[str, Any]:
    before = bench.reading()
    sent, done = await driver.one_at_a_time(driver.urls(jobs))
    return {"jobs": jobs, **_times(sent, done), **costs(before, bench.reading(), jobs)}


async def _saturation(bench: Bench, driver: Driver, urls: Sequence[str], batch: int) -> dict[str, Any]:
    jobs = len(urls)
    before = bench.reading()
    began = time.monotonic()
    sent = await driver.flood(urls, batch, LANES)
    submitted = time.monotonic() - began
    done = await driver.wait(list(sent.at), 120.0 + jobs * 0.2, 0.25)
    after = bench.reading()
    wall = max(done.values()) - min(sent.at.values())
    return {
        "jobs": jobs,
        "jobs_per_min": round(jobs / wall * 60),
        "submit_s": round(submitted, 2),
        "refused": sent.refused,
        **_times(sent, done),
        **costs(before, after, jobs),
    }


def _times(sent: Sent, done: Mapping[str, float]) -> dict[str, float]:
    return {**latencies(sent, done), "accept_p50_ms": accept_p50_ms(sent)}


def costs(before: Reading, after: Reading, jobs: int) -> dict[str, Any]:
    """Return resources and requests between two readings, per job."""
    found = difference(before.used, after.used, jobs)
    found["requests_per_job"] = per_job(before.requests, after.requests, jobs)
    if before.embedded is not None and after.embedded is not None:
        found["embedded_per_job"] = round((after.embedded - before.embedded) / jobs, 3)
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add_arguments(parser)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.add_argument("--eager-polling", action="store_true", help="let no batch fill, as Lambda's pollers")
    parser.add_argument("--pollers", type=int, default=1, help="receives beside each other; Lambda has 5")
    return parser.parse_args()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options that say what is measured."""
    parser.add_argument("--pages", type=Path, metavar="DIR", help="HTML pages; default: the built-in site's")
    parser.add_argument("--jobs", type=int, default=2000, help="jobs at saturation")
    parser.add_argument("--unchanged", type=int, default=1000, help="of these, how many again, unchanged")
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
