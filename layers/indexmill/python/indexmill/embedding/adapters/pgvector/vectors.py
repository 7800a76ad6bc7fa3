"""Nearest vectors: exact in a small corpus, through an approximate index in a large one.

An exact search reads every vector of its corpus (about 0.4 ms per 1,000 of 256 numbers), needs no index and
costs a writer nothing. Once a corpus has EXACT_LIMIT chunks, its space gets an IVFFlat index, cheap to insert
into (an HNSW index would cost a writer more than all the rest), and another when the space has grown
fourfold. The function `index_builds_due` of the database says when; sql/build_index.py builds.
"""

from __future__ import annotations

import math
from typing import Final

from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.ports import Vector
from indexmill.platform.postgres.database import Connection

EXACT_LIMIT: Final = 10_000
_MAX_LISTS: Final = 1_000
_MIN_PROBES: Final = 16


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
    values |= {"dimension": len(vector), "probes": max(_MIN_PROBES, lists(indexed_rows) // _MIN_PROBES)}
    found = connection.execute(SQL["nearest_approximate"], values).fetchall()
    return sorted(found, key=lambda row: -row[1])


def lists(rows: int) -> int:
    """Return into how many lists the index over `rows` vectors is divided: the function `ivfflat_lists`."""
    return min(_MAX_LISTS, max(_MIN_PROBES, math.isqrt(rows)))
