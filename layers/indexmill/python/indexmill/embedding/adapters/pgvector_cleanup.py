"""Dropping what a newly published version no longer has, in the same transaction, under the same lock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from indexmill.embedding.adapters.pgvector_plan import Held, Plan
from indexmill.embedding.analyzer import ANALYZER_VERSION, count_terms
from indexmill.platform.postgres.database import Connection

_HELD = """
SELECT c.document, c.id, encode(c.chunk_id, 'hex'),
       ARRAY(SELECT e.space FROM vectors AS e, spaces AS s
             WHERE e.corpus = c.corpus AND e.space = s.id AND e.chunk = c.id)
FROM memberships AS m JOIN chunks AS c ON c.id = m.chunk
WHERE m.document = ANY(%s)
"""
_DROP_MEMBERSHIPS = """
DELETE FROM memberships AS m USING unnest(%s::int8[], %s::int8[]) AS v (document, generation)
WHERE m.document = v.document AND m.generation <> v.generation
"""
_DROP_VECTORS = """
DELETE FROM vectors AS e USING unnest(%s::int4[], %s::int4[], %s::int4[]) AS v (corpus, space, chunk)
WHERE e.corpus = v.corpus AND e.space = v.space AND e.chunk = v.chunk
"""
_DROP_CHUNKS = """
DELETE FROM chunks WHERE id = ANY(%s)
RETURNING id, corpus, words, terms, analyzer_version, language, context, text
"""
_DROP_POSTINGS = """
DELETE FROM postings AS p USING unnest(%s::int4[], %s::int4[], %s::int4[]) AS v (corpus, term, chunk)
WHERE p.corpus = v.corpus AND p.term = v.term AND p.chunk = v.chunk
"""
# Reads the whole corpus: only for chunks whose terms can no longer be derived from their text.
_DROP_POSTINGS_SLOWLY = "DELETE FROM postings WHERE corpus = ANY(%s) AND chunk = ANY(%s)"


@dataclass(slots=True)
class Totals:
    """By corpus: chunks and words more (or fewer), and the lowest and highest row touched."""

    changes: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)

    def count(self, corpus: int, chunks: int, words: int, row_id: int) -> None:
        """Add `chunks` (may be negative) with `words` in all to the corpus."""
        n, w, first, last = self.changes.get(corpus, (0, 0, row_id, row_id))
        self.changes[corpus] = (n + chunks, w + words, min(first, row_id), max(last, row_id))


def held_chunks(connection: Connection, documents: Sequence[int]) -> dict[int, dict[str, Held]]:
    """Return what the documents' published versions have, by document and chunk id."""
    found: dict[int, dict[str, Held]] = defaultdict(dict)
    if documents:
        for document, row_id, chunk_id, spaces in connection.execute(_HELD, (list(documents),)).fetchall():
            found[document][chunk_id] = Held(row_id, frozenset(spaces))
    return found


def drop_superseded(connection: Connection, plans: Sequence[Plan], totals: Totals) -> None:
    """Drop older generations of the plans' documents, and take what goes off the totals."""
    replaced = [plan for plan in plans if plan.held]
    if not replaced:
        return
    documents = [plan.document for plan in replaced]
    connection.execute(_DROP_MEMBERSHIPS, (documents, [plan.version.generation for plan in replaced]))
    vectors = [(plan.corpus, space, row) for plan in replaced for row, space in plan.stale_vectors]
    if vectors:
        connection.execute(_DROP_VECTORS, tuple(map(list, zip(*vectors, strict=True))))
    gone = [row for plan in replaced for row in plan.gone]
    if gone:
        _drop_chunks(connection, gone, totals)


def _drop_chunks(connection: Connection, gone: list[int], totals: Totals) -> None:
    """Drop chunks with their postings. Their terms are found by analyzing their text again."""
    keys: list[tuple[int, int, int]] = []
    expected = 0
    dropped = connection.execute(_DROP_CHUNKS, (gone,)).fetchall()
    for row_id, corpus, words, terms, version, language, context, text in dropped:
        totals.count(corpus, -1, -words, row_id)
        expected += terms
        if version == ANALYZER_VERSION:
            whole = f"{context}\n\n{text}" if context else text
            keys += [(corpus, term, row_id) for term in count_terms(whole, language)]
    done = 0
    if keys:
        done = connection.execute(_DROP_POSTINGS, tuple(map(list, zip(*keys, strict=True)))).rowcount
    if done != expected:
        corpora = list({row[1] for row in dropped})
        connection.execute(_DROP_POSTINGS_SLOWLY, (corpora, gone))
