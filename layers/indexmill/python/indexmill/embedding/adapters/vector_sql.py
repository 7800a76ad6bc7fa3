"""Nearest vectors: exact in a small corpus, through an approximate index in a large one.

An exact search reads every vector of its corpus (about 0.4 ms per 1,000 of 256 numbers), needs no index and
costs a writer nothing. Once a corpus has EXACT_LIMIT chunks, its space gets an IVFFlat index: built in a
fraction of a second, cheap to insert into (an HNSW index would cost a writer more than all the rest), and
rebuilt when the space has grown fourfold.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Final

import psycopg

from indexmill.embedding.ports import Vector
from indexmill.platform.postgres.database import Connection

EXACT_LIMIT: Final = 10_000
_INDEXABLE_DIMENSIONS: Final = 4_000
_GROWTH: Final = 4
_LOCK: Final = 710_233
_MAX_LISTS: Final = 1_000
_MIN_PROBES: Final = 16

_logger = logging.getLogger(__name__)

_EXACT: Final = """
SELECT e.chunk, -(e.embedding <#> %(vector)s::halfvec) AS similarity
FROM vectors AS e WHERE e.corpus = %(corpus)s AND e.space = %(space)s
ORDER BY e.embedding <#> %(vector)s::halfvec LIMIT %(depth)s
"""
_APPROXIMATE: Final = """
SELECT e.chunk, -(e.embedding::halfvec({dimension}) <#> %(vector)s::halfvec({dimension})) AS similarity
FROM vectors AS e WHERE e.corpus = %(corpus)s AND e.space = {space}
ORDER BY e.embedding::halfvec({dimension}) <#> %(vector)s::halfvec({dimension}) LIMIT %(depth)s
"""
_SIZES: Final = """
SELECT coalesce(max(n), 0)::int8, coalesce(sum(n), 0)::int8,
       (SELECT indexed_rows FROM spaces WHERE id = %s), (SELECT dimension FROM spaces WHERE id = %s)
FROM (SELECT sum(chunks) AS n FROM corpus_totals GROUP BY corpus) AS sizes
"""


def nearest(
    connection: Connection, place: tuple[int, int], vector: Vector, depth: int, *, indexed_rows: int
) -> list[tuple[int, float]]:
    """Return the rows and cosine similarities of the nearest vectors, nearest first.

    `place` is the corpus and the space; `vector` has length 1. `indexed_rows` > 0 takes the space's
    approximate index, which was built over that many rows.
    """
    corpus, space = place
    literal = f"[{','.join(map(repr, map(float, vector)))}]"
    values = {"vector": literal, "corpus": corpus, "space": space, "depth": depth}
    if not indexed_rows:
        return connection.execute(_EXACT, values).fetchall()
    statement = _APPROXIMATE.format(dimension=len(vector), space=space)
    with connection.transaction():
        probes = max(_MIN_PROBES, _lists(indexed_rows) // _MIN_PROBES)
        settings = f"SET LOCAL ivfflat.iterative_scan = relaxed_order; SET LOCAL ivfflat.probes = {probes}"
        connection.execute(settings.encode())
        found = connection.execute(statement.encode(), values).fetchall()
    return sorted(found, key=lambda row: -row[1])


def build_index_when_due(connection: Connection, space: int) -> bool:
    """Build the space's approximate index when a corpus has outgrown exact search, or the index its build.

    Writers of vectors wait for the build, readers do not; a process that finds another one building skips it.
    Returns whether an index was built. A failure is logged: search stays exact.
    """
    largest, total, indexed, dimension = _sizes(connection, space)
    if largest < EXACT_LIMIT or total < _GROWTH * indexed or dimension > _INDEXABLE_DIMENSIONS:
        return False
    try:
        with connection.transaction():
            return _build(connection, space, total)
    except psycopg.Error:
        _logger.warning("The vector index of space %d could not be built.", space, exc_info=True)
        return False


def _build(connection: Connection, space: int, rows: int) -> bool:
    connection.execute("SET LOCAL statement_timeout = '60s'; SET LOCAL lock_timeout = '5s'")
    got = connection.execute("SELECT pg_try_advisory_xact_lock(%s, %s)", (_LOCK, space)).fetchone()
    if got is None or not got[0] or _sizes(connection, space)[2] * _GROWTH > rows:
        return False
    # Only its owner may make an index of a table; the function is theirs and may be called by us.
    connection.execute("SELECT build_vector_index(%s, %s, %s)", (space, _lists(rows), rows))
    return True


def _lists(rows: int) -> int:
    return min(_MAX_LISTS, max(_MIN_PROBES, math.isqrt(rows)))


def _sizes(connection: Connection, space: int) -> Sequence[int]:
    return connection.execute(_SIZES, (space, space)).fetchall()[0]
