"""Publishing: one transaction makes a batch of document versions what search sees.

Order of locks, the same in every writer: the documents by id, then, last and briefly, the totals of their
corpora. Nothing else is shared: chunk ids come from blocks of a sequence, document frequencies are read off
the postings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from indexmill.embedding.adapters import pgvector_cleanup, pgvector_rows
from indexmill.embedding.adapters.pgvector_names import Names
from indexmill.embedding.adapters.pgvector_plan import Plan
from indexmill.embedding.ports import DocumentVersion
from indexmill.embedding.publication import missing_vectors
from indexmill.platform.postgres.database import Connection
from indexmill.platform.postgres.stored_text import storable

BLOCK = 64
"""Chunk rows per number of the sequence `chunk_blocks`."""
_STRIPES = 16

_CLAIM = """
INSERT INTO documents (document_id, corpus_id, url)
SELECT * FROM unnest(%s::text[], %s::int4[], %s::text[]) AS claimed (document_id, corpus_id, url)
ORDER BY document_id
ON CONFLICT (document_id) DO UPDATE SET updated_at = now()
RETURNING document_id, id, published, min_generation
"""
# The count is read back from the tables: a version is visible with every chunk and vector, or not at all.
_PUBLISH = """
UPDATE documents AS d
SET published = v.generation, url = v.url, title = v.title, content_sha256 = v.content_sha256,
    job_id = v.job_id, chunk_count = v.chunks, model = v.model, dimension = v.dimension, updated_at = now()
FROM unnest(%s::int8[], %s::int8[], %s::int4[], %s::int4[], %s::text[], %s::text[], %s::text[], %s::text[],
            %s::text[], %s::int4[])
  AS v (id, generation, chunks, space, url, title, content_sha256, job_id, model, dimension)
WHERE d.id = v.id AND (d.published IS NULL OR d.published < v.generation) AND d.min_generation <= v.generation
  AND v.chunks = (
    SELECT count(*) FROM memberships AS m
    JOIN chunks AS c ON c.id = m.chunk
    JOIN vectors AS e ON e.corpus = c.corpus AND e.space = v.space AND e.chunk = c.id
    WHERE m.document = v.id AND m.generation = v.generation)
"""
_ADD_TOTALS = f"""
INSERT INTO corpus_totals AS t (corpus, stripe, chunks, words, first_chunk, last_chunk)
SELECT added.corpus, pg_backend_pid() %% {_STRIPES}, added.chunks, added.words, added.first_row,
       added.last_row
FROM unnest(%s::int4[], %s::int8[], %s::int8[], %s::int4[], %s::int4[])
  AS added (corpus, chunks, words, first_row, last_row)
ORDER BY added.corpus
ON CONFLICT (corpus, stripe) DO UPDATE
SET chunks = t.chunks + excluded.chunks, words = t.words + excluded.words,
    first_chunk = least(t.first_chunk, excluded.first_chunk),
    last_chunk = greatest(t.last_chunk, excluded.last_chunk)
"""


@dataclass(slots=True)
class RowIds:
    """Hands out chunk row ids from blocks that this process took; what is left is used by the next batch."""

    free: list[int] = field(default_factory=list)
    last_block: int = 0

    def take(self, connection: Connection, count: int) -> list[int]:
        """Return `count` ids that no other process gets."""
        lacking = count - len(self.free)
        if lacking > 0:
            statement = "SELECT nextval('chunk_blocks')::int4 FROM generate_series(1, %s)"
            for (block,) in connection.execute(statement, (-(-lacking // BLOCK),)).fetchall():
                self.free += range(block * BLOCK, (block + 1) * BLOCK)
                self.last_block = block
        taken, self.free = self.free[:count], self.free[count:]
        return taken


def publish(
    connection: Connection, versions: Sequence[DocumentVersion], names: Names, row_ids: RowIds
) -> dict[str, int]:
    """Publish `versions` (one per document, by document id) inside the open transaction.

    Returns the generation that is published afterwards, by document id.
    Raises TransientError(embedding_incomplete) when a chunk has no vector.
    """
    published, plans = _claim(connection, versions, names)
    if not plans:
        return published
    fresh = iter(row_ids.take(connection, sum(plan.lacking for plan in plans)))
    for plan in plans:
        plan.fill(fresh)
    _write(connection, plans)
    _make_visible(connection, plans)
    totals = _added(plans)
    pgvector_cleanup.drop_superseded(connection, plans, totals)
    _add_totals(connection, totals)
    return published | {plan.version.target.document_id: plan.version.generation for plan in plans}


def _claim(
    connection: Connection, versions: Sequence[DocumentVersion], names: Names
) -> tuple[dict[str, int], list[Plan]]:
    """Lock the documents; return what is published so far, and a plan for each version that may go ahead."""
    ids = [version.target.document_id for version in versions]
    corpora = [names.corpora[version.target.corpus_key] for version in versions]
    urls = [storable(version.target.url) for version in versions]
    state = {key: rest for key, *rest in connection.execute(_CLAIM, (ids, corpora, urls)).fetchall()}
    published = {key: row[1] for key, row in state.items() if row[1] is not None}
    going = [
        version
        for version, (_, current, least) in zip(versions, map(state.__getitem__, ids), strict=True)
        if (current is None or current < version.generation) and least <= version.generation
    ]
    known = [state[v.target.document_id][0] for v in going if v.target.document_id in published]
    held = pgvector_cleanup.held_chunks(connection, known)
    plans = []
    for version in going:
        row = state[version.target.document_id][0]
        corpus, space = names.corpora[version.target.corpus_key], names.spaces[version.space]
        plans.append(Plan(version, row, corpus, space, held.get(row, {})))
    return published, plans


def _write(connection: Connection, plans: Sequence[Plan]) -> None:
    new = [chunk for plan in plans for chunk in plan.chunks]
    table = f"chunks ({pgvector_rows.CHUNK_COLUMNS})"
    pgvector_rows.copy(connection, table, map(pgvector_rows.chunk_row, new))
    pgvector_rows.copy(connection, "postings", pgvector_rows.posting_rows(new))
    vectors = (
        pgvector_rows.vector_row(plan.corpus, plan.space, row, vector)
        for plan in plans
        for row, vector in plan.vectors
    )
    pgvector_rows.copy(connection, "vectors", vectors)
    members = (
        pgvector_rows.membership_row(plan.document, plan.version.generation, row, place)
        for plan in plans
        for row, place in plan.places
    )
    pgvector_rows.copy(connection, "memberships", members)


def _make_visible(connection: Connection, plans: Sequence[Plan]) -> None:
    rows = []
    for plan in plans:
        version, space = plan.version, plan.version.space
        title = None if version.title is None else storable(version.title)
        rows.append(
            (
                *(plan.document, version.generation, len(plan.places), plan.space),
                *(storable(version.target.url), title, version.content_sha256, version.job_id),
                *(space.model, space.dimension),
            )
        )
    done = connection.execute(_PUBLISH, tuple(map(list, zip(*rows, strict=True))))
    if done.rowcount != len(plans):
        raise missing_vectors(len(plans) - done.rowcount)


def _added(plans: Sequence[Plan]) -> pgvector_cleanup.Totals:
    totals = pgvector_cleanup.Totals()
    for plan in plans:
        for chunk in plan.chunks:
            totals.count(plan.corpus, 1, chunk.words, chunk.row_id)
    return totals


def _add_totals(connection: Connection, totals: pgvector_cleanup.Totals) -> None:
    rows = [(corpus, *change) for corpus, change in totals.changes.items()]
    if rows:
        connection.execute(_ADD_TOTALS, tuple(map(list, zip(*rows, strict=True))))
