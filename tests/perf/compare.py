"""This stack beside what one would pick instead, in turns: what others use of the machine hits all alike.

    python -m tests.perf.compare --peers DIR --peers-python PYTHON --pages DIR [--rounds 3] [--jobs 600]

`--peers` holds a `bench.py VARIANT --n JOBS --low JOBS` that prints one JSON document: `low`, `sat`, `mem`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.perf.pipeline import add_arguments
from tests.perf.stack_under_test import REPOSITORY

OURS: Final = "indexmill"
_PEER_S: Final = 600
_OURS_S: Final = 1200
_ROWS: Final = ("cpu_ms_per_job", "jobs_per_min", "p50_ms", "p95_ms", "pss_mb")
_TITLES: Final = {
    "cpu_ms_per_job": "CPU-ms/job, saturated",
    "jobs_per_min": "jobs/min, saturated",
    "p50_ms": "low-load p50 ms",
    "p95_ms": "low-load p95 ms",
    "pss_mb": "PSS MB",
}


def main() -> None:
    """Run the rounds, print the table."""
    chosen = _arguments()
    measured: dict[str, list[dict[str, float]]] = {}
    for number in range(chosen.rounds):
        for variant in (OURS, *chosen.variants.split(",")):
            print(f"round {number + 1}: {variant}", file=sys.stderr, flush=True)
            figures = ours(chosen) if variant == OURS else peer(chosen, variant)
            print(f"  {figures}", file=sys.stderr, flush=True)
            measured.setdefault(variant, []).append(figures)
    print(table(measured))
    if chosen.output is not None:
        chosen.output.write_text(json.dumps(measured, indent=1) + "\n")


def ours(chosen: argparse.Namespace) -> dict[str, float]:
    """One run of this stack."""
    with tempfile.TemporaryDirectory(prefix="indexmill-perf-") as folder:
        output = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "tests.perf.pipeline", "--no-functions", "--unchanged", "0"]
        for name in ("pages", "jobs", "low", "batch", "embeddings"):
            command += [f"--{name}", str(getattr(chosen, name))]
        for value in chosen.parameter:
            command += ["--parameter", value]
        subprocess.run(
            [*command, "--output", str(output)],
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            timeout=_OURS_S,
            check=True,
        )
        found = json.loads(output.read_text())
    own = float(found["memory_pss_mb"]["own"])
    return _figures(found["low"], found["saturation"], own)


def peer(chosen: argparse.Namespace, variant: str) -> dict[str, float]:
    """One run of a peer; its own stand-ins are not counted."""
    command = [
        str(chosen.peers_python),
        "bench.py",
        variant,
        "--n",
        str(chosen.jobs),
        "--low",
        str(chosen.low),
    ]
    answer = subprocess.run(
        command,
        cwd=chosen.peers,
        env=_clean(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=_PEER_S,
        check=True,
    )
    found = json.loads(answer.stdout)
    memory = sum(group["pss_mb"] for name, group in found["mem"].items() if name != "stub")
    return _figures(found["low"], found["sat"], float(memory))


def table(measured: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Medians as a Markdown table; in parentheses ours divided by the peer's."""
    medians = {
        variant: {row: statistics.median(run[row] for run in runs) for row in _ROWS}
        for variant, runs in measured.items()
    }
    lines = ["| | " + " | ".join(medians) + " |", "|---" * (len(medians) + 1) + "|"]
    for row in _ROWS:
        cells = [
            f"{figures[row]:g}" + ("" if variant == OURS else f" ({medians[OURS][row] / figures[row]:.2f}x)")
            for variant, figures in medians.items()
        ]
        lines.append(f"| {_TITLES[row]} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _figures(low: Mapping[str, float], saturation: Mapping[str, float], pss_mb: float) -> dict[str, float]:
    return {
        "cpu_ms_per_job": saturation["cpu_ms_per_job"],
        "jobs_per_min": saturation["jobs_per_min"],
        "p50_ms": low["p50_ms"],
        "p95_ms": low["p95_ms"],
        "pss_mb": pss_mb,
        "machine_cores_busy": saturation["machine_cores_busy"],
        "own_cores": saturation["own_cores"],
    }


def _clean() -> dict[str, str]:
    """Our environment without what points Python at our own packages."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    add_arguments(parser)
    parser.add_argument("--peers", type=Path, required=True, metavar="DIR")
    parser.add_argument("--peers-python", type=Path, required=True, metavar="PYTHON")
    parser.add_argument("--variants", default="floor,celery", help="of the peers, with commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, metavar="FILE.json")
    parser.set_defaults(jobs=600)
    chosen = parser.parse_args()
    if chosen.pages is None:
        parser.error("--pages: the peers' own pages, so that all do the same work")
    return chosen


if __name__ == "__main__":
    main()
