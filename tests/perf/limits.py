"""Capacity on AWS: the limits that jobs reach at 10, 100, 1,000 and 10,000 a second, from measured work.

    python -m tests.perf.limits

`WORK` is what `python -m tests.perf.capacity` measured for pages of Debian's documentation. A limit's use is
the demand of all jobs, divided by the limit; the largest one saturates first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.perf.cost_model import API, ASSUMED
from tests.perf.figures import columns
from tests.support.function_env import template

RATES: Final = (10, 100, 1_000, 10_000)


@dataclass(frozen=True, slots=True)
class JobWork:
    """Work of one new page in full batches."""

    rows: float
    """Inserted and updated."""
    index_entries: float
    wal_bytes: float
    table_bytes: float
    """With indexes."""
    database_cpu_s: float
    tokens: float
    chunks: float


WORK: Final = JobWork(
    rows=998,
    index_entries=1_140,
    wal_bytes=202_000,
    table_bytes=176_000,
    database_cpu_s=0.012,
    tokens=4_400,
    chunks=21,
)
_FILL: Final = {10: 1, 100: 4, 1_000: 10, 10_000: 10}
"""Messages of a batch: single at ten jobs a second, full where invocations wait for each other."""
_SUBMIT: Final = 100
_CONCURRENCY: Final = {
    "ScraperWorker": "ScrapeConcurrency",
    "ChunkingWorker": "ChunkConcurrency",
    "EmbeddingWorker": "EmbedConcurrency",
    "OrchestratorResults": "CallbackConcurrency",
}
_LATENCY_S: Final = 3.0
"""From admission until a job is done, single, with the durations of the cost model and the hops between."""


@dataclass(frozen=True, slots=True)
class Limit:
    """One limit: what a job takes of it, per second of load, and how much there is."""

    name: str
    have: float
    unit: str
    demand: dict[int, float]
    """By jobs a second."""

    def use(self, rate: int) -> float:
        """Return the share of the limit that `rate` jobs a second take; above 1 they wait."""
        return self.demand[rate] / self.have


def limits() -> list[Limit]:
    """Return the limits of the template, of AWS and of the database, with the demand on each."""
    linear = {
        "database: cores (8, db.r8g.2xlarge)": (WORK.database_cpu_s, 8.0, "cores"),
        "database: log (gp3, 250 MB/s)": (WORK.wal_bytes / 1e6, 250.0, "MB/s"),
        "database: rows (300,000/s, assumed)": (WORK.rows, 300_000.0, "rows/s"),
        "S3: writes below raw/ (3,500/s a prefix)": (1.0, 3_500.0, "PUT/s"),
        "API: submits of 100 (500 requests/s)": (1 / _SUBMIT, 500.0, "requests/s"),
        "endpoint: one H100, 8 B parameters": (WORK.tokens, 33_000.0, "tokens/s"),
        "endpoint: one H100, 0.6 B parameters": (WORK.tokens, 330_000.0, "tokens/s"),
    }
    found = [
        Limit(name, have, unit, {rate: rate * each for rate in RATES})
        for name, (each, have, unit) in linear.items()
    ]
    busy = {name: {rate: _environments(name, rate) for rate in RATES} for name in ASSUMED}
    parameters = template()["Parameters"]
    for function, parameter in _CONCURRENCY.items():
        have = float(parameters[parameter]["Default"])
        found.append(Limit(f"{parameter} (default {have:g})", have, "at once", busy[function]))
    total = {rate: sum(each[rate] for each in busy.values()) for rate in RATES}
    found.append(Limit("Lambda: account (1,000 at once)", 1_000.0, "at once", total))
    window = float(parameters["DispatchWindow"]["Default"])
    in_flight = {rate: rate * _LATENCY_S for rate in RATES}
    found.append(Limit(f"DispatchWindow (default {window:g})", window, "jobs", in_flight))
    found.append(Limit("SQS: messages received and not deleted, a queue", 120_000.0, "messages", in_flight))
    return found


def _environments(function: str, rate: int) -> float:
    """Return how many execution environments are busy on average."""
    fill = _SUBMIT if function == API else _FILL[rate]
    batches = 3 if function == "OrchestratorResults" else 1
    return rate * batches / fill * ASSUMED[function].of(fill) / 1e3


def report() -> Iterator[str]:
    """Yield the use of each limit at each rate, and what saturates first."""
    found = sorted(limits(), key=lambda limit: -limit.use(RATES[-1]))
    rows = [(limit.name, [f"{limit.use(rate):.0%}" for rate in RATES]) for limit in found]
    yield from columns(["use of", *(f"{rate:,} jobs/s" for rate in RATES)], rows)
    for rate in RATES:
        over = sorted((limit for limit in found if limit.use(rate) > 1), key=lambda limit: -limit.use(rate))
        names = "; ".join(f"{limit.name} {limit.use(rate):.1f}x" for limit in over)
        yield f"{rate:,} jobs/s, above a limit: {names or 'nothing'}"


def main() -> None:
    """Print the table."""
    print("\n".join(report()))


if __name__ == "__main__":
    main()
