"""CPU of this checkout and of another one, by a benchmark run in turns, so that other load hits both alike.

    python -m tests.perf.pairs OTHER_CHECKOUT [--pairs 5] [--jobs 1000] [--low 40] [--pages DIR]

The other checkout has its own environment (`make setup`). Printed are CPU-ms a job of each run, at saturation
and one job at a time, the memory (PSS) in MB after the jobs, the median of the ratios, and the interval that
holds it with 90 % or more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from math import comb
from pathlib import Path
from typing import Final

from tests.perf.stack_under_test import REPOSITORY

_RUN_S: Final = 1200
_FIGURES: Final = ("saturation", "low", "memory")


def main() -> None:
    """Run the pairs and print them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("other", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1000, help="jobs at saturation")
    parser.add_argument("--low", type=int, default=40, help="jobs one at a time")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="HTML pages; default: the built-in site's")
    chosen = parser.parse_args()
    options = ["--jobs", str(chosen.jobs), "--low", str(chosen.low)]
    if chosen.pages:
        options += ["--pages", str(chosen.pages.resolve())]
    ratios: dict[str, list[float]] = {name: [] for name in _FIGURES}
    for number in range(chosen.pairs):
        turns = [REPOSITORY, chosen.other.resolve()]
        found = {root: measured(root, options) for root in turns[:: -1 if number % 2 else 1]}
        new, old = found[turns[0]], found[turns[1]]
        for name in _FIGURES:
            ratios[name].append(new[name] / old[name])
        each = ", ".join(f"{name} {new[name]:.2f} / {old[name]:.2f}" for name in _FIGURES)
        print(f"pair {number + 1}: here / there: {each}", flush=True)
    for name, values in ratios.items():
        low, high, sure = interval(values)
        print(f"{name}: median {statistics.median(values):.3f}, {low:.3f} to {high:.3f} ({sure:.0%})")


def measured(root: Path, options: Sequence[str]) -> dict[str, float]:
    """Return CPU-ms a job by load, and the memory, of one run of the checkout's own pipeline benchmark."""
    with tempfile.TemporaryDirectory(prefix="indexmill-pairs-") as folder:
        output = Path(folder) / "figures.json"
        command = [
            root / ".venv/bin/python",
            "-m",
            "tests.perf.pipeline",
            "--no-functions",
            "--unchanged",
            "0",
        ]
        command += [*options, "--output", str(output)]
        subprocess.run(command, cwd=root, stdout=subprocess.DEVNULL, timeout=_RUN_S, check=True)
        figures = json.loads(output.read_text())
    cpu = {load: float(figures[load]["cpu_ms_per_job"]) for load in ("saturation", "low")}
    return {**cpu, "memory": float(figures["memory_pss_mb"]["own"])}


def interval(values: Sequence[float], least: float = 0.9) -> tuple[float, float, float]:
    """Return the narrowest interval between two of the values that holds the true median with `least`.

    The third value is that probability, by the binomial distribution; less than `least` where even the
    smallest and the largest value do not reach it.
    """
    ordered, count = sorted(values), len(values)
    for inside in range(count // 2, -1, -1):
        beyond = sum(comb(count, each) for each in range(inside + 1)) / 2**count
        if 1 - 2 * beyond >= least or inside == 0:
            return ordered[inside], ordered[count - 1 - inside], 1 - 2 * beyond
    raise ValueError("no values")


if __name__ == "__main__":
    main()
