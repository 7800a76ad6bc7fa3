"""A stack's start with its first job, and eight clients that wait: this checkout and another one in turns.

    python -m tests.perf.starts [OTHER_CHECKOUT] [--pairs 3] [--jobs 1000]

The other checkout has its own environment (`make setup`). Printed are the CPU of the start with the first job
by component, the time that each of eight clients waits for the answer to its submits, one after the other,
while the stack works on what they submitted, and the memory after that.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.perf.accounting import Accountant, own_memory
from tests.perf.load import Driver
from tests.perf.machine import Watch
from tests.perf.stack_under_test import REPOSITORY, page_parameters, page_server, stack

_CLIENTS: Final = 8
_ALL_ADMITTED: Final = ("QuotaEnterprise=unlimited", "RateEnterprise=unlimited", "DispatchWindow=2000")
_SUMS: Final = ("start_cpu_s", "p50_ms", "p95_ms", "pss_mb")
_SHOWN_S: Final = 0.005


def main() -> None:
    """Run the turns, print the figures of each and the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other", type=Path, nargs="?")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000, help="of the eight clients together; 0 for none")
    chosen = parser.parse_args()
    watch = Watch()
    roots = [REPOSITORY, *([] if chosen.other is None else [chosen.other.resolve()])]
    found: list[list[Mapping[str, float]]] = [[] for _ in roots]
    for number in range(chosen.pairs):
        for at in range(len(roots))[:: -1 if number % 2 else 1]:
            found[at].append(measured(roots[at], chosen.jobs))
            print(f"{('here', 'there')[at]}: {_line(found[at][-1])}", flush=True)
    for name in (name for name in _SUMS if name in found[0][0]):
        medians = [statistics.median(figures[name] for figures in each) for each in found]
        ratio = f", here / there {medians[0] / medians[1]:.2f}" if len(roots) > 1 else ""
        print(f"{name}: median {' / '.join(f'{value:.2f}' for value in medians)}{ratio}")
    print("\n".join(watch.lines()))


def measured(root: Path, jobs: int) -> dict[str, float]:
    """Return the figures of one stack of a checkout: sums first, then CPU seconds by component."""
    with ExitStack() as resources:
        server = resources.enter_context(page_server(None))
        before = _children_s()
        started = resources.enter_context(stack([*page_parameters(server), *_ALL_ADMITTED], root=root))
        command_s = _children_s() - before
        accountant = Accountant(started.info)

        async def run() -> dict[str, float]:
            names = server.said["pages"]
            async with Driver(started.info, f"http://{server.address}", names) as driver:
                await driver.one_at_a_time(driver.urls(1))
                parts = {"command": command_s, **accountant.snapshot().cpu_s}
                figures = {"start_cpu_s": sum(parts.values())}
                if jobs:
                    sent = await driver.flood(driver.urls(jobs), 1, _CLIENTS)
                    await driver.wait(list(sent.at), 120.0 + jobs * 0.2, 0.25)
                    cut = statistics.quantiles(sent.took_s, n=20)
                    figures |= {"p50_ms": cut[9] * 1e3, "p95_ms": cut[18] * 1e3}
                    figures["pss_mb"] = own_memory(accountant.memory())
                return figures | dict(sorted(parts.items(), key=lambda part: -part[1]))

        return asyncio.run(run())


def _line(figures: Mapping[str, float]) -> str:
    shown = (f"{name} {value:.2f}" for name, value in figures.items() if value >= _SHOWN_S)
    return ", ".join(shown)


def _children_s() -> float:
    """Return the CPU of the commands that have ended, seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
