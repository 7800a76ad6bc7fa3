"""Searching: a keyword list and a vector list, fused by rank; then the rows of the best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from indexmill.embedding.adapters import bm25_sql, vector_sql
from indexmill.embedding.adapters.bm25_sql import CorpusTotals
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.fusion import DEPTH, fuse, similarity_score
from indexmill.embedding.ports import Hit, SearchQuery
from indexmill.embedding.publication import unit
from indexmill.platform.postgres.database import Connection

_TOTALS: Final = """
SELECT c.id, coalesce(sum(t.chunks), 0)::int8, coalesce(sum(t.words), 0)::int8,
       coalesce(min(t.first_chunk), 0), coalesce(max(t.last_chunk), 0),
       (SELECT s.id FROM spaces AS s WHERE s.model = %(model)s AND s.dimension = %(dimension)s),
       (SELECT s.indexed_rows FROM spaces AS s WHERE s.model = %(model)s AND s.dimension = %(dimension)s)
FROM corpora AS c LEFT JOIN corpus_totals AS t ON t.corpus = c.id
WHERE c.corpus_key = %(key)s
GROUP BY c.id
"""
# One statement, one snapshot: all rows belong to versions that are published at that time.
_ROWS: Final = """
SELECT c.id, encode(c.chunk_id, 'hex'), c.text, d.url, d.title, d.document_id, m.ordinal, c.context,
       m.start_at, m.end_at
FROM chunks AS c
JOIN documents AS d ON d.id = c.document
JOIN memberships AS m ON m.document = d.id AND m.generation = d.published AND m.chunk = c.id
WHERE c.id = ANY(%s) AND d.corpus_id = %s
"""


def search(connection: Connection, query: SearchQuery) -> list[Hit]:
    """Return the best chunks of the corpus, as `VectorIndex.search` says."""
    space = query.space
    values = {"key": query.corpus_key, "model": space.model, "dimension": space.dimension}
    row = connection.execute(_TOTALS, values).fetchone()
    if row is None:
        return []
    totals = CorpusTotals(*row[:5])
    ranked = _ranked(connection, query, totals, row[5], row[6] or 0)
    return _hits(connection, ranked, totals.corpus, query.top_k)


def _ranked(
    connection: Connection, query: SearchQuery, totals: CorpusTotals, space: int | None, indexed_rows: int
) -> list[tuple[int, float]]:
    depth = max(DEPTH, query.top_k)
    keyword: list[tuple[int, float]] = []
    vector: list[tuple[int, float]] = []
    if query.text is not None:
        keyword = bm25_sql.rank(connection, totals, count_terms(query.text), depth)
    if query.vector is not None:
        direction = unit(query.vector, query.space)
        if space is not None:
            usable = indexed_rows if totals.chunks >= vector_sql.EXACT_LIMIT else 0
            place = (totals.corpus, space)
            vector = vector_sql.nearest(connection, place, direction, depth, indexed_rows=usable)
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
        rows = connection.execute(_ROWS, ([row for row, _ in part], corpus)).fetchall()
        found = {row[0]: row[1:] for row in rows}
        hits += [_hit(found[row], score) for row, score in part if row in found]
    return hits[:top_k]


def _hit(row: Sequence[Any], score: float) -> Hit:
    chunk_id, text, url, title, document_id, ordinal, context, start, end = row
    return Hit(chunk_id, text, score, url, title, document_id, ordinal, context, start, end)
