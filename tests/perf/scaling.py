"""Benchmark of scaling: jobs a minute by the embedders' concurrency, and a steady load of one caller.

    python -m tests.perf.scaling concurrency [--levels 2,4,8,10] [--per-input-ms 60] [--pages DIR]
    python -m tests.perf.scaling steady [--per-minute 1000] [--minutes 5] [--pages DIR]

`concurrency` gives each level about a minute of work, against an endpoint that takes its time for each input;
the pace is that of the middle of the run. `steady` submits evenly and prints the latency of small texts and
of documents.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import psycopg

from tests.perf.accounting import Accountant, difference
from tests.perf.load import Driver, Sent
from tests.perf.stack_under_test import (
    StartedStack,
    embedding_parameters,
    embedding_stub,
    page_parameters,
    page_server,
    stack,
)

SMALL_CHUNKS: Final = 5
"""A page with at most so many chunks is a small text."""
DOCUMENT_CHUNKS: Final = 40
"""A page with at least so many is a document."""
_AIMS_S: Final = {"small text": 5.0, "document": 30.0}
_RUN_S: Final = 40.0
_EDGE: Final = 0.2
"""Share of the jobs at the start and at the end of a run in which not all embedders have work."""
_WARM: Final = 40
_MOST_IN_FLIGHT: Final = ("QuotaEnterprise=unlimited", "DispatchWindow=2000")
_CHUNKS: Final = "SELECT id, chunk_count FROM jobs WHERE id = ANY(%s)"


def main() -> None:
    """Run what was asked for and print its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("what", choices=("concurrency", "steady"))
    parser.add_argument("--pages", type=Path, metavar="DIR", help="HTML pages; default: the built-in site's")
    parser.add_argument("--levels", default="2,4,8,10", help="values of EmbedConcurrency")
    parser.add_argument("--per-input-ms", type=float, default=60.0, help="the endpoint's time for an input")
    parser.add_argument("--per-minute", type=int, default=1000, help="jobs of the steady load")
    parser.add_argument("--minutes", type=float, default=5.0, help="how long the steady load lasts")
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="KEY=VALUE", help="of template.yaml"
    )
    chosen = parser.parse_args()
    print(json.dumps(concurrency(chosen) if chosen.what == "concurrency" else steady(chosen), indent=1))


def concurrency(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return the pace at each level, and how near it is to proportional growth from the first."""
    levels = [int(level) for level in chosen.levels.split(",")]
    runs = {}
    for level in levels:
        runs[level] = _level(chosen, level)
        print(f"EmbedConcurrency={level}: {runs[level]}", file=sys.stderr, flush=True)
    pace = runs[levels[0]]["jobs_per_min"] / levels[0]
    for level, figures in runs.items():
        figures["of_linear"] = round(figures["jobs_per_min"] / (pace * level), 3)
    return {"load_before": os.getloadavg()[0], "levels": runs}


def _level(chosen: argparse.Namespace, level: int) -> dict[str, Any]:
    parameters = [f"EmbedConcurrency={level}", *_MOST_IN_FLIGHT, *chosen.parameter]
    with ExitStack() as resources:
        started, site, names = _started(resources, chosen.pages, parameters, chosen.per_input_ms)
        accountant = Accountant(started.info)

        async def run() -> dict[str, Any]:
            async with Driver(started.info, site, names) as driver:
                warm = await driver.flood(driver.urls(_WARM), 100, 2)
                await driver.wait(list(warm.at), 300.0, 0.25)
                inputs = statistics.mean(_chunk_counts(started, list(warm.at)).values())
                count = round(level * _RUN_S / (inputs * chosen.per_input_ms / 1e3) / (1 - 2 * _EDGE))
                before = accountant.snapshot()
                sent = await driver.flood(driver.urls(count), 100, 2)
                done = sorted((await driver.wait(list(sent.at), 600.0, 0.25)).values())
                used = difference(before, accountant.snapshot(), count)
                middle = done[int(_EDGE * count) : int((1 - _EDGE) * count)]
                return {
                    "jobs": count,
                    "inputs_per_job": round(inputs, 1),
                    "jobs_per_min": round((len(middle) - 1) / (middle[-1] - middle[0]) * 60, 1),
                    "embed_invocations_per_job": used["invocations_per_job"]["EmbeddingWorker"],
                    "machine_cores_busy": used["machine_cores_busy"],
                }

        return asyncio.run(run())


def steady(chosen: argparse.Namespace) -> dict[str, Any]:
    """Return accepted and done jobs a minute, and the latency of small texts and of documents."""
    with ExitStack() as resources:
        started, site, names = _started(resources, chosen.pages, chosen.parameter, 0.0)
        accountant = Accountant(started.info)

        async def run() -> dict[str, Any]:
            async with Driver(started.info, site, names) as driver:
                warm = await driver.flood(driver.urls(_WARM), 100, 2)
                await driver.wait(list(warm.at), 120.0, 0.25)
                count = round(chosen.per_minute * chosen.minutes)
                before = accountant.snapshot()
                moments = [at * 60 / chosen.per_minute for at in range(count)]
                sent = await driver.at_moments(driver.urls(count), moments)
                done = await driver.wait(list(sent.at), 120.0, 0.25)
                used = difference(before, accountant.snapshot(), count)
                return {
                    "jobs": count,
                    "jobs_per_min": round(count / (max(done.values()) - min(sent.at.values())) * 60),
                    "refused": sent.refused,
                    "latency": _by_size(sent, done, _chunk_counts(started, list(done))),
                    "cpu_ms_per_job": used["cpu_ms_per_job"],
                    "own_cores": used["own_cores"],
                    "machine_cores_busy": used["machine_cores_busy"],
                }

        return {"load_before": os.getloadavg()[0], **asyncio.run(run())}


def _started(
    resources: ExitStack, pages: Path | None, parameters: Sequence[str], per_input_ms: float
) -> tuple[StartedStack, str, list[str]]:
    server = resources.enter_context(page_server(pages))
    stub = resources.enter_context(embedding_stub(per_input_ms))
    given = [*page_parameters(server), *embedding_parameters(stub), *parameters]
    started = resources.enter_context(stack(given))
    return started, f"http://{server.address}", server.said["pages"]


def _chunk_counts(started: StartedStack, job_ids: Sequence[str]) -> dict[str, int]:
    with psycopg.connect(started.info["database_url"]) as database:
        return dict(database.execute(_CHUNKS, (list(job_ids),)).fetchall())


def _by_size(sent: Sent, done: dict[str, float], chunks: dict[str, int]) -> dict[str, Any]:
    sizes = {
        "small text": [job for job in done if chunks[job] <= SMALL_CHUNKS],
        "document": [job for job in done if chunks[job] >= DOCUMENT_CHUNKS],
        "all": list(done),
    }
    found = {}
    for name, jobs in sizes.items():
        took = sorted(done[job] - sent.at[job] for job in jobs)
        if took:
            p50, p95 = took[len(took) // 2], took[min(len(took) - 1, int(0.95 * len(took)))]
            found[name] = {"jobs": len(took), "p50_s": round(p50, 3), "p95_s": round(p95, 3)}
            if name in _AIMS_S:
                found[name]["aim_p95_s"] = _AIMS_S[name]
    return found


if __name__ == "__main__":
    main()
