"""BM25 over the `postings` table: how frequent the words are, then one pass over their postings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from indexmill.embedding.bm25 import K1, B, weights
from indexmill.platform.postgres.database import Connection

_SLICES: Final = 8
_SLICE_LIMIT: Final = 64

# A term's frequency is counted in eight equal ranges of the corpus's rows, up to 64 postings in each; a range
# with more is extrapolated from their density. Exact for rare terms, within a few percent for common
# ones, and the cost has a bound; a table of frequencies would add a third to what a document costs to write.
_FREQUENCIES: Final = f"""
SELECT q.term, sum(CASE WHEN s.found < {_SLICE_LIMIT} THEN s.found
                        ELSE s.found * %(width)s::float8 / (s.last - r.low + 1) END)::float8
FROM unnest(%(terms)s::int4[]) AS q (term)
CROSS JOIN generate_series(%(first)s::int4, %(last)s::int4, %(width)s::int4) AS r (low)
CROSS JOIN LATERAL (
  SELECT count(*) AS found, max(chunk) AS last
  FROM (SELECT p.chunk FROM postings AS p
        WHERE p.corpus = %(corpus)s AND p.term = q.term AND p.chunk >= r.low AND p.chunk < r.low + %(width)s
        ORDER BY p.chunk LIMIT {_SLICE_LIMIT}) AS seen
) AS s
WHERE s.found > 0
GROUP BY q.term
"""
_RANK: Final = """
SELECT p.chunk, sum(q.weight * p.tf / (p.tf + %(base)s::float8 + %(slope)s::float8 * p.dl)) AS score
FROM unnest(%(terms)s::int4[], %(weights)s::float8[]) AS q (term, weight)
JOIN postings AS p ON p.corpus = %(corpus)s AND p.term = q.term
GROUP BY p.chunk
ORDER BY score DESC, p.chunk
LIMIT %(depth)s
"""


@dataclass(frozen=True, slots=True)
class CorpusTotals:
    """What BM25 needs to know of a corpus."""

    corpus: int
    chunks: int
    words: int
    first_row: int
    last_row: int


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
    return [(row, score / ceiling) for row, score in connection.execute(_RANK, values).fetchall()]


def _frequencies(connection: Connection, totals: CorpusTotals, terms: list[int]) -> dict[int, float]:
    values = {
        "terms": terms,
        "corpus": totals.corpus,
        "first": totals.first_row,
        "last": totals.last_row,
        "width": (totals.last_row - totals.first_row) // _SLICES + 1,
    }
    return dict(connection.execute(_FREQUENCIES, values).fetchall())
