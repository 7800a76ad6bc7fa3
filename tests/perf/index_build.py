"""Benchmark of index builds: how long one takes, and searches meanwhile, on a real Postgres.

    python -m tests.perf.index_build --vectors 200000

One corpus of made-up unit vectors of 256 numbers in 1,000 groups. One process searches, each time for another
vector: before the first build (exact), during it, after it, and during and after the build that replaces it.
Prints p50 and p99 of the nearest 50, and the share of the exact nearest 10 that the index finds.
"""

from __future__ import annotations

import argparse
import os
import random
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from statistics import quantiles

import numpy
import psycopg

from indexmill.embedding.adapters.pgvector import search
from indexmill.embedding.adapters.pgvector.publish import copy_rows
from indexmill.platform.postgres.database import Connection, Database
from local.backends.postgres import EmbeddedPostgres, create_database
from sql.build_index import build_due
from sql.migrate import migrate
from tests.perf.machine import Watch

DIMENSION = 256
GROUPS = 1_000
PART = 10_000
QUESTIONS = 200
DEPTH = 50
EXACT_SEARCHES = 15
"""Searches without an index: each reads all vectors."""


class World:
    """Vectors around the centres of groups."""

    def __init__(self) -> None:
        self._draw = numpy.random.default_rng(7)
        self._centres = self._draw.normal(size=(GROUPS, DIMENSION))

    def vectors(self, count: int) -> numpy.ndarray:
        """Return so many unit vectors."""
        chosen = self._centres[self._draw.integers(0, GROUPS, count)]
        found = chosen + self._draw.normal(scale=0.8, size=(count, DIMENSION))
        return found / numpy.linalg.norm(found, axis=1, keepdims=True)


def fill(connection: Connection, world: World, count: int) -> None:
    """Write one corpus of `count` vectors."""
    connection.execute("INSERT INTO spaces (model, dimension) VALUES ('bench', %s)", (DIMENSION,))
    connection.execute("INSERT INTO corpus_totals VALUES (1, 0, %s, 0, 0, 0)", (count,))
    head = struct.Struct(">hiiiiiiihH")
    for at in range(0, count, PART):
        part = world.vectors(min(PART, count - at)).astype(">f2")
        copy_rows(
            connection,
            "vectors",
            (
                head.pack(4, 4, 1, 4, 1, 4, at + number, 4 + 2 * DIMENSION, DIMENSION, 0) + one.tobytes()
                for number, one in enumerate(part)
            ),
        )
    connection.execute("VACUUM ANALYZE vectors")


def searches(connection: Connection, questions: Sequence[list[float]], indexed: int) -> Iterator[float]:
    """Yield the milliseconds of each search, without an end."""
    draw = random.Random(5)
    while True:
        question = draw.choice(questions)
        began = time.perf_counter()
        search.nearest(connection, (1, 1), question, DEPTH, indexed_rows=indexed)
        yield 1000 * (time.perf_counter() - began)


def during_build(
    url: str, connection: Connection, questions: Sequence[list[float]], indexed: int
) -> tuple[float, list[float]]:
    """Return the seconds of a build and the milliseconds of the searches meanwhile."""
    took: list[float] = []

    def build() -> None:
        began = time.perf_counter()
        assert build_due(url) == [1]
        took.append(time.perf_counter() - began)

    builder = threading.Thread(target=build)
    times = searches(connection, questions, indexed)
    builder.start()
    found = []
    while builder.is_alive():
        found.append(next(times))
    builder.join()
    return took[0], found


def recall(connection: Connection, questions: Sequence[list[float]], indexed: int) -> float:
    """Return the share of the exact nearest ten that the index finds."""
    found = 0
    for question in questions:
        exact, approximate = (
            {row for row, _ in search.nearest(connection, (1, 1), question, 10, indexed_rows=rows)}
            for rows in (0, indexed)
        )
        found += len(exact & approximate)
    return found / (10 * len(questions))


def show(label: str, times: Sequence[float]) -> None:
    """Print p50, p99 and the machine's load at the end."""
    cuts = quantiles(times, n=100, method="inclusive")
    print(
        f"search {label:28} p50 {cuts[49]:8.1f} ms  p99 {cuts[98]:8.1f} ms  ({len(times)} searches)"
        f"  load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--vectors", type=int, default=200_000)
    count: int = parser.parse_args().vectors
    machine, world = Watch(), World()
    with tempfile.TemporaryDirectory(prefix="indexmill-bench-") as folder:
        server = EmbeddedPostgres(Path(folder), settings={"shared_buffers": "256MB"})
        try:
            url = create_database(server.start(), "bench")
            migrate(url)
            with psycopg.connect(url, autocommit=True) as filler:
                began = time.perf_counter()
                fill(filler, world, count)
                print(f"{count} vectors written in {time.perf_counter() - began:.0f} s", flush=True)
            questions = world.vectors(QUESTIONS).tolist()
            with closing(Database(url)) as database:
                measure(url, database.connection(), questions, count)
        finally:
            server.delete()
    print("\n".join(machine.lines()))


def measure(url: str, connection: Connection, questions: Sequence[list[float]], count: int) -> None:
    """Build the index twice, and search before, meanwhile and afterwards."""
    times = searches(connection, questions, 0)
    show("exact, before", [next(times) for _ in range(EXACT_SEARCHES)])
    took, found = during_build(url, connection, questions, 0)
    print(f"first build: {took:.1f} s", flush=True)
    show("exact, during the build", found)
    times = searches(connection, questions, count)
    show("by the index", [next(times) for _ in range(2 * QUESTIONS)])
    print(f"recall of 10: {recall(connection, questions[:20], count):.3f}")
    connection.execute("UPDATE spaces SET indexed_rows = %s", (count // 4,))
    took, found = during_build(url, connection, questions, count)
    print(f"build that replaces it: {took:.1f} s", flush=True)
    show("by the index, during the build", found)
    times = searches(connection, questions, count)
    show("by the new index", [next(times) for _ in range(2 * QUESTIONS)])


if __name__ == "__main__":
    main()
