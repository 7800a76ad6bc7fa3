"""Benchmark of fairness: delay of a job by another caller's backlog, and accuracy of `expected_by`.

    python -m tests.perf.fairness [--parameter KEY=VALUE]

Starts a stack whose pages take 200 ms each and prints its figures as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import psycopg

from tests.support.stack import RunningStack, eventually, running_stack

BACKLOG: Final = 1_000
RUN: Final = 200
_BATCH: Final = 100
_SOLO: Final = 9
_AMONG: Final = 7
_WARM: Final = 5
_PAGE_S: Final = 0.2

_ENDED: Final = "SELECT count(*) FROM jobs WHERE id = ANY(%s) AND status IN ('done', 'failed')"
_END: Final = "SELECT caller_id, extract(epoch FROM ended_at)::float8 FROM jobs WHERE id = %s"
_BETWEEN: Final = """
SELECT count(*) FROM jobs WHERE caller_id <> %s AND ended_at BETWEEN to_timestamp(%s) AND to_timestamp(%s)
"""
_PROMISES: Final = """
SELECT extract(epoch FROM expected_by - created_at)::float8, extract(epoch FROM ended_at - created_at)::float8
FROM jobs WHERE id = ANY(%s) AND status = 'done'
"""


@dataclass(frozen=True, slots=True)
class Fairness:
    """Jobs of one caller among another one's backlog."""

    solo_s: float
    """Half of its jobs took less when it was alone."""
    times_solo: list[float]
    """How much longer each took among the backlog."""
    others: list[int]
    """How many of the backlog ended meanwhile."""
    backlog_per_min: int


@dataclass(frozen=True, slots=True)
class Promises:
    """A run of jobs, against what was promised when they were submitted."""

    kept: float
    """Share that ended in time."""
    slack: float
    """Promised time by needed time, of the job in the middle."""


@dataclass(frozen=True, slots=True)
class Site:
    """A running stack whose pages take their time, and its database."""

    stack: RunningStack
    database: psycopg.Connection[tuple[Any, ...]]

    def fairness(self) -> Fairness:
        """Run jobs of the second caller alone, then among the first caller's backlog."""
        solo = statistics.median(self._one()[0] for _ in range(_SOLO))
        began = time.time()
        backlog = [
            each for _ in range(BACKLOG // _BATCH) for each in self._submit(self.stack.api_key, _BATCH)
        ]
        eventually(lambda: self._ended(backlog) >= 30, "the backlog is being worked on")
        among = [self._one() for _ in range(_AMONG)]
        if self._ended(backlog) == BACKLOG:
            raise AssertionError("the backlog ended before it was looked at")
        eventually(lambda: self._ended(backlog) == BACKLOG, "the backlog is done", within_s=300)
        rate = round(60 * BACKLOG / (time.time() - began))
        return Fairness(
            round(solo, 3),
            [round(took / solo, 2) for took, _ in among],
            [others for _, others in among],
            rate,
        )

    def promises(self, batch: int) -> Promises:
        """Submit a run of jobs, `batch` at a time, and look at what became of its promises."""
        job_ids = [each for _ in range(RUN // batch) for each in self._submit(self.stack.api_key, batch)]
        eventually(lambda: self._ended(job_ids) == RUN, "the run ends", within_s=180)
        reported = self.database.execute(_PROMISES, (job_ids,)).fetchall()
        kept = sum(needed <= promised for promised, needed in reported) / RUN
        slack = statistics.median(promised / needed for promised, needed in reported)
        return Promises(round(kept, 3), round(slack, 2))

    def warm_up(self) -> None:
        """Run some jobs together, which starts every worker, as many with warm ones, then a few alone."""
        for _ in range(2):
            together = self._submit(self.stack.api_key, 2 * RUN // _WARM)
            eventually(lambda ids=together: self._ended(ids) == len(ids), "the workers are warm", within_s=60)
        for _ in range(_WARM):
            self._one()

    def _submit(self, key: str, count: int) -> list[str]:
        urls = [f"{self.stack.site}/slow?seconds={_PAGE_S}&n={uuid.uuid4().hex}" for _ in range(count)]
        with self.stack.http(key) as http:
            answer = http.post("/orchestrator/jobs", json={"urls": urls})
        answer.raise_for_status()
        job_ids: list[str] = answer.json()["job_ids"]
        return job_ids

    def _ended(self, job_ids: list[str]) -> int:
        row = self.database.execute(_ENDED, (job_ids,)).fetchone()
        return int(row[0]) if row else 0

    def _one(self) -> tuple[float, int]:
        """Seconds of one job of the second caller, and how many jobs of others ended meanwhile."""
        began = time.time()
        (job_id,) = self._submit(self.stack.other_api_key, 1)
        eventually(lambda: self._ended([job_id]) == 1, "the job ends")
        [(caller_id, end)] = self.database.execute(_END, (job_id,)).fetchall()
        [(others,)] = self.database.execute(_BETWEEN, (caller_id, began, end)).fetchall()
        return end - began, others


@contextlib.contextmanager
def warm_site(*parameters: str) -> Iterator[Site]:
    """Run a stack and warm it up."""
    with (
        running_stack(*parameters) as stack,
        psycopg.connect(stack.database_url, autocommit=True) as database,
    ):
        site = Site(stack, database)
        site.warm_up()
        yield site


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="KEY=VALUE", help="of template.yaml"
    )
    with warm_site(*parser.parse_args().parameter) as site:
        figures = {f"promises_{batch}_a_submit": asdict(site.promises(batch)) for batch in (_BATCH, 1)}
        print(json.dumps({"fairness": asdict(site.fairness()), **figures}, indent=1))


if __name__ == "__main__":
    main()
