"""Search: a keyword list and a vector list, fused by rank; then the rows of the best.

An exact search reads every vector of its corpus (about 0.4 ms per 1,000 of 256 numbers), needs no index and
costs a writer nothing. Once a corpus has EXACT_LIMIT chunks, its space gets an IVFFlat index, cheap to insert
into (an HNSW index would cost a writer more than all the rest), and another when the space has grown
fourfold. The function `index_builds_due` of the database says when; sql/build_index.py builds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg.rows import class_row, dict_row

from indexmill.embedding.adapters.pgvector.statements import ROW_RANGES, SQL
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.documents import unit
from indexmill.embedding.ports import Found, Hit, SearchQuery, Vector
from indexmill.embedding.ranking import DEPTH, K1, B, fuse, similarity_score, weights
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


@dataclass(frozen=True, slots=True)
class CorpusTotals:
    """Sizes of a corpus and the range of its chunks' rows."""

    corpus: int
    chunks: int
    words: int
    first_row: int
    last_row: int
    space: int | None
    """Number of the query's embedding space; None when no vector was ever kept in it."""
    indexed_rows: int | None
    """Vectors in that space's approximate index."""
    spaces: int
    """Of all corpora."""


def search(connection: Connection, query: SearchQuery) -> Found:
    """Return the best chunks of the corpus, as `VectorIndex.search` says."""
    space = query.space
    values = {"key": query.corpus_key, "model": space.model, "dimension": space.dimension}
    cursor = connection.cursor(row_factory=class_row(CorpusTotals))
    totals = cursor.execute(SQL["corpus_totals"], values).fetchone()
    if totals is None:
        return Found([], other_model=False)
    ranked = _ranked(connection, query, totals)
    hits = _hits(connection, ranked, totals.corpus, query.top_k)
    return Found(hits, other_model=_other_model(connection, totals))


def _other_model(connection: Connection, totals: CorpusTotals) -> bool:
    """Return whether the corpus has vectors of another space than the query's."""
    if totals.spaces == (totals.space is not None):
        return False
    values = {"corpus": totals.corpus}
    (found,) = connection.execute(SQL["corpus_spaces"], values).fetchall()[0]
    return any(space not in (None, totals.space) for space in found)


def _ranked(connection: Connection, query: SearchQuery, totals: CorpusTotals) -> list[tuple[int, float]]:
    depth = max(DEPTH, query.top_k)
    keyword: list[tuple[int, float]] = []
    vector: list[tuple[int, float]] = []
    if query.text is not None:
        keyword = rank(connection, totals, count_terms(query.text), depth)
    if query.vector is not None:
        direction = unit(query.vector, query.space)
        if totals.space is not None:
            usable = (totals.indexed_rows or 0) if totals.chunks >= EXACT_LIMIT else 0
            place = (totals.corpus, totals.space)
            vector = nearest(connection, place, direction, depth, indexed_rows=usable)
    if query.text is None:
        return [(row, similarity_score(cosine)) for row, cosine in vector]
    if query.vector is None:
        return keyword
    return fuse([row for row, _ in keyword], [row for row, _ in vector])


def _hits(connection: Connection, ranked: Sequence[tuple[int, float]], corpus: int, top_k: int) -> list[Hit]:
    """Return the first `top_k` that are still there: a re-index may have dropped some just now."""
    hits: list[Hit] = []
    at = 0
    while len(hits) < top_k and at < len(ranked):
        part = ranked[at : at + top_k]
        at += len(part)
        values = {"rows": [row for row, _ in part], "corpus": corpus}
        rows = connection.cursor(row_factory=dict_row).execute(SQL["hits"], values).fetchall()
        found = {row.pop("row_id"): row for row in rows}
        hits += [Hit(score=score, **found[row]) for row, score in part if row in found]
    return hits[:top_k]


def rank(
    connection: Connection, totals: CorpusTotals, query: Mapping[int, int], depth: int
) -> list[tuple[int, float]]:
    """Return the rows of the best `depth` chunks with their scores, best first.

    `query` counts the question's terms. A score is the share, below 1, of what no chunk can exceed.
    """
    if totals.chunks <= 0 or not query:
        return []
    weight = weights(query, _frequencies(connection, totals, list(query)), totals.chunks)
    if not weight:
        return []
    values = {
        "base": K1 * (1 - B),
        "slope": K1 * B * totals.chunks / max(totals.words, 1),
        "terms": list(weight),
        "weights": list(weight.values()),
        "corpus": totals.corpus,
        "depth": depth,
    }
    ceiling = sum(weight.values())
    return [
        (row, score / ceiling) for row, score in connection.execute(SQL["rank_by_words"], values).fetchall()
    ]


def _frequencies(connection: Connection, totals: CorpusTotals, terms: list[int]) -> dict[int, float]:
    values = {
        "terms": terms,
        "corpus": totals.corpus,
        "first": totals.first_row,
        "last": totals.last_row,
        "width": (totals.last_row - totals.first_row) // ROW_RANGES + 1,
    }
    return dict(connection.execute(SQL["term_frequencies"], values).fetchall())
