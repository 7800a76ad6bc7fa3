"""Search: the candidates of a keyword list and of a vector list, and the rows of those that are shown.

An exact search reads every vector of its corpus (about 0.4 ms per 1,000 of 256 numbers), needs no index and
costs a writer nothing. Once a corpus has EXACT_LIMIT chunks, its space gets an IVFFlat index, cheap to insert
into (an HNSW index would cost a writer more than all the rest), and another when the space has grown
fourfold. The function `index_builds_due` of the database says when; sql/build_index.py builds. It is read for
corpora that have a large share of their space.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from indexmill.contracts.content import PageFacts
from indexmill.contracts.http_search import Neighbour, Period, SearchFilter
from indexmill.embedding.adapters.pgvector.statements import ROW_RANGES, SQL
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.documents import unit
from indexmill.embedding.ports import POOL, Candidate, Hit, Lists, Named, SearchQuery
from indexmill.embedding.ranking import K1, B, step, weights
from indexmill.platform.postgres.database import Connection

EXACT_LIMIT: Final = 10_000
_MAX_LISTS: Final = 1_000
_MIN_LISTS: Final = 16
PROBED: Final = 0.4
"""Share of an index's lists that a search reads. A sixteenth has .86 of the nearest ten, 0.4 has .98."""


@dataclass(frozen=True, slots=True)
class CorpusTotals:
    """Sizes of a corpus and the range of its chunks' rows."""

    at: int
    """Place among those that were asked for, from 1."""
    key: str
    corpus: int
    shared: bool
    """Whether another caller shares it with the one who asks."""
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


@dataclass(frozen=True, slots=True)
class Among:
    """Chunks that may be in a list."""

    rows: str | None = None
    """Their numbers as the text of an array, which only Postgres reads; None: all of the corpora."""
    chunks: int = 0
    """How many, where there are `rows`."""


ALL: Final = Among()


def lists(connection: Connection, query: SearchQuery) -> Lists:
    """Return the candidates of the corpora, as `VectorIndex.lists` says."""
    space = query.space
    values = {**named_values(query.corpora), "model": space.model, "dimension": space.dimension}
    cursor = connection.cursor(row_factory=class_row(CorpusTotals))
    found = cursor.execute(SQL["corpus_totals"], values).fetchall()
    by_place = {each.at: each.key for each in found}
    keys = [by_place.get(at) for at in range(1, len(query.corpora) + 1)]
    if None in keys:
        return Lists([], [], 1.0, other_model=False, keys=keys)
    totals = list({each.corpus: each for each in found}.values())
    among = ALL if query.filter is None else _matching(connection, totals, query.filter)
    scored, ceiling = ([], 1.0) if query.text is None else _keyword(connection, totals, query.text, among)
    keyword, vector = _candidates(connection, scored, _vector(connection, totals, query, among))
    shared = frozenset(each.key for each in totals if each.shared)
    return Lists(keyword, vector, ceiling, _other_model(connection, totals), keys, shared)


Scored = list[tuple[int, float]]
"""Rows of chunks with their scores, best first."""


def _candidates(connection: Connection, *lists: Scored) -> list[list[Candidate]]:
    """Return what is in each list: at most `POOL`, equal scores in the order of chunk ids."""
    lists = tuple(_with_ties(scored) for scored in lists)
    rows = list({row for scored in lists for row, _ in scored})
    found = connection.execute(SQL["candidates"], {"rows": rows}).fetchall() if rows else []
    known = {row: (chunk_id, document) for row, chunk_id, document in found}
    # A re-index may have dropped some just now.
    made = [[Candidate(*known[row], score) for row, score in scored if row in known] for scored in lists]
    return [sorted(each, key=lambda one: (-one.score, one.chunk_id))[:POOL] for each in made]


def _with_ties(scored: Scored) -> Scored:
    """Return the first `POOL`, and those whose score is that of the last of them."""
    if len(scored) <= POOL:
        return scored
    least = scored[POOL - 1][1]
    return [each for each in scored if each[1] >= least]


def named_values(corpora: Sequence[str | Named]) -> dict[str, Any]:
    """Return the values of `asked_corpora` for corpora that one caller names; its own code gives keys."""
    named = [each if isinstance(each, Named) else Named("", "") for each in corpora]
    return {
        "owner": named[0].owner,
        "caller_id": named[0].caller_id,
        "names": [each.name for each in named],
        "public_ids": [each.public_id for each in named],
        "keys": [each if isinstance(each, str) else None for each in corpora],
    }


def _matching(connection: Connection, totals: Sequence[CorpusTotals], wanted: SearchFilter) -> Among:
    """Return the chunks of the documents that match."""
    values: dict[str, Any] = {"corpora": [each.corpus for each in totals]}
    values |= {name: getattr(wanted, name) for name in ("url_prefix", "language", "content_type")}
    values["metadata"] = None if wanted.metadata is None else Jsonb(wanted.metadata)
    for name in ("published", "fetched", "indexed"):
        period: Period | None = getattr(wanted, f"{name}_at")
        values[f"{name}_since"] = period and period.since
        values[f"{name}_before"] = period and period.before
    dated = wanted.metadata_dates or {}
    values["dated"] = list(dated) or None
    values["dated_since"] = [period.since for period in dated.values()]
    values["dated_before"] = [period.before for period in dated.values()]
    rows, chunks = connection.execute(SQL["matching_chunks"], values).fetchall()[0]
    return Among(rows, chunks)


def hits(
    connection: Connection, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0
) -> dict[str, Hit]:
    """Return the rows of the chunks, as `VectorIndex.hits` says."""
    values = {"chunk_ids": [bytes.fromhex(chunk_id) for chunk_id in chunk_ids], "keys": list(corpora)}
    values["neighbours"] = neighbours
    found = {}
    for row in connection.cursor(row_factory=dict_row).execute(SQL["hits"], values).fetchall():
        beside = [Neighbour(**each) for each in row.pop("neighbours") or ()]
        facts = PageFacts.model_validate(row.pop("facts"))
        found[row["chunk_id"]] = Hit(**row, facts=facts, neighbours=beside)
    return found


def _other_model(connection: Connection, totals: Sequence[CorpusTotals]) -> bool:
    """Return whether a corpus has vectors of another space than the query's."""
    if totals[0].spaces == (totals[0].space is not None):
        return False
    values = {"corpora": [each.corpus for each in totals]}
    found = connection.execute(SQL["corpus_spaces"], values).fetchall()
    return any(space not in (None, totals[0].space) for spaces in found for space in spaces)


def _keyword(
    connection: Connection, totals: Sequence[CorpusTotals], text: str, among: Among
) -> tuple[Scored, float]:
    """Return the best chunks by BM25, and the score that none can reach."""
    query, chunks = count_terms(text), sum(each.chunks for each in totals)
    weight = weights(query, frequencies(connection, totals, query), chunks) if query and chunks > 0 else {}
    if not weight:
        return [], 1.0
    unit_of_score = step(weight)
    values = {
        "base": K1 * (1 - B),
        "slope": K1 * B * chunks / max(sum(each.words for each in totals), 1),
        "terms": list(weight),
        "weights": [each / unit_of_score for each in weight.values()],
        "corpora": [each.corpus for each in totals],
        "rows": among.rows,
    }
    found = connection.execute(SQL["rank_by_words"], values).fetchall()
    return [(row, steps * unit_of_score) for row, steps in found], sum(weight.values())


def frequencies(
    connection: Connection, totals: Sequence[CorpusTotals], query: Mapping[int, int]
) -> dict[int, int]:
    """Return how many chunks of the corpora have each term of `query`."""
    values = {
        "terms": list(query),
        "corpora": [each.corpus for each in totals],
        "firsts": [each.first_row for each in totals],
        "lasts": [each.last_row for each in totals],
        "widths": [(each.last_row - each.first_row) // ROW_RANGES + 1 for each in totals],
    }
    return dict(connection.execute(SQL["term_frequencies"], values).fetchall())


def _vector(
    connection: Connection, totals: Sequence[CorpusTotals], query: SearchQuery, among: Among
) -> Scored:
    """Return the nearest chunks by cosine similarity: exact, or by the space's index where that is faster."""
    space, indexed_rows = totals[0].space, totals[0].indexed_rows or 0
    if query.vector is None:
        return []
    vector = unit(query.vector, query.space)
    if space is None:
        return []
    values: dict[str, Any] = {
        "vector": f"[{','.join(map(repr, map(float, vector)))}]",
        "space": space,
        "depth": POOL,
        "dimension": len(vector),
        "probes": math.ceil(PROBED * lists_of(indexed_rows)),
        "rows": among.rows,
    }
    approximate = indexed_rows and (among.rows is None or among.chunks >= EXACT_LIMIT)
    # A corpus that has fewer chunks than the index would read is faster without it, and exact.
    least = max(EXACT_LIMIT, PROBED * indexed_rows)
    large = [each.corpus for each in totals if approximate and each.chunks >= least]
    small = [each.corpus for each in totals if each.corpus not in large]
    found: Scored = []
    for statement, corpora in (("nearest_exact", small), ("nearest_approximate", large)):
        if corpora:
            found += connection.execute(SQL[statement], values | {"corpora": corpora}).fetchall()
    return sorted(found, key=lambda each: -each[1])


def lists_of(rows: int) -> int:
    """Return into how many lists the index over `rows` vectors is divided: the function `ivfflat_lists`."""
    return min(_MAX_LISTS, max(_MIN_LISTS, 4 * math.isqrt(rows)))
