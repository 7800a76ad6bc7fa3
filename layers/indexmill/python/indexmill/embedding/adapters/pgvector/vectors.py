"""Nearest vectors: exact in a small corpus, through an approximate index in a large one.

An exact search reads every vector of its corpus (about 0.4 ms per 1,000 of 256 numbers), needs no index and
costs a writer nothing. Once a corpus has EXACT_LIMIT chunks, its space gets an IVFFlat index: built in a
fraction of a second, cheap to insert into (an HNSW index would cost a writer more than all the rest), and
rebuilt when the space has grown fourfold.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg.rows import class_row, scalar_row

from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.ports import Vector
from indexmill.platform.postgres.database import Connection

EXACT_LIMIT: Final = 10_000
_INDEXABLE_DIMENSIONS: Final = 4_000
_GROWTH: Final = 4
_LOCK: Final = 710_233
_MAX_LISTS: Final = 1_000
_MIN_PROBES: Final = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Chunks of the largest corpus, of all, and in the space's index; numbers per vector."""

    largest: int
    total: int
    indexed: int
    dimension: int


def nearest(
    connection: Connection, place: tuple[int, int], vector: Vector, depth: int, *, indexed_rows: int
) -> list[tuple[int, float]]:
    """Return the rows and cosine similarities of the nearest vectors, nearest first.

    `place` is the corpus and the space; `vector` has length 1. `indexed_rows` > 0 takes the space's
    approximate index, which was built over that many rows.
    """
    corpus, space = place
    literal = f"[{','.join(map(repr, map(float, vector)))}]"
    values: dict[str, object] = {"vector": literal, "corpus": corpus, "space": space, "depth": depth}
    if not indexed_rows:
        return connection.execute(SQL["nearest_exact"], values).fetchall()
    values |= {"dimension": len(vector), "probes": max(_MIN_PROBES, _lists(indexed_rows) // _MIN_PROBES)}
    found = connection.execute(SQL["nearest_approximate"], values).fetchall()
    return sorted(found, key=lambda row: -row[1])


def build_index_when_due(connection: Connection, space: int) -> bool:
    """Build the space's approximate index when a corpus has outgrown exact search, or the index its build.

    Writers of vectors wait for the build, readers do not; a process that finds another one building skips it.
    Returns whether an index was built. A failure is logged: search stays exact.
    """
    sizes = _sizes(connection, space)
    if sizes.largest < EXACT_LIMIT or sizes.total < _GROWTH * sizes.indexed:
        return False
    if sizes.dimension > _INDEXABLE_DIMENSIONS:
        return False
    try:
        with connection.transaction():
            return _build(connection, space, sizes.total)
    except psycopg.Error:
        _logger.warning("The vector index of space %d could not be built.", space, exc_info=True)
        return False


def _build(connection: Connection, space: int, rows: int) -> bool:
    connection.execute(SQL["limit_build"])
    values = {"lock": _LOCK, "space": space}
    locked = connection.cursor(row_factory=scalar_row).execute(SQL["lock_build"], values).fetchone()
    if not locked or _sizes(connection, space).indexed * _GROWTH > rows:
        return False
    connection.execute(SQL["build_index"], {"space": space, "lists": _lists(rows), "rows": rows})
    return True


def _lists(rows: int) -> int:
    return min(_MAX_LISTS, max(_MIN_PROBES, math.isqrt(rows)))


def _sizes(connection: Connection, space: int) -> _Sizes:
    cursor = connection.cursor(row_factory=class_row(_Sizes))
    return cursor.execute(SQL["space_sizes"], {"space": space}).fetchall()[0]
