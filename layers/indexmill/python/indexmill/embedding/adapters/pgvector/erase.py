"""Erasing: one transaction takes away all that the index has of documents, and counts it before and after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from psycopg.rows import dict_row

from indexmill.contracts.http_deletion import Erased
from indexmill.embedding.adapters.pgvector.publish import Totals, add_totals, columns_of, drop_chunks
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.platform.postgres.database import Connection


def erase(connection: Connection, job_id: str, documents: Sequence[str], generation: int) -> Erased:
    """Erase the documents inside the open transaction, but for what a newer generation published of them.

    The counts are kept by job and document: asked again for the same, it returns the first ones.
    """
    cursor = connection.cursor(row_factory=dict_row)
    asked = {"job_id": job_id, "documents": list(documents), "generation": generation}
    # Locked in the order in which publishing locks them.
    locked = cursor.execute(SQL["lock_erased"], asked).fetchall()
    ids = [row["id"] for row in locked]
    connection.execute(SQL["count_erased"], {"job_id": job_id, "ids": ids})
    by_corpus: dict[int, list[int]] = defaultdict(list)
    for row in cursor.execute(SQL["erase_memberships"], {"ids": ids}).fetchall():
        by_corpus[row["corpus"]].append(row["chunk"])
    pairs = [(corpus, chunk) for corpus, chunks in by_corpus.items() for chunk in chunks]
    totals, keys = Totals(), list[tuple[int, int, int]]()
    values = columns_of(("corpora", "rows"), pairs) if pairs else {"corpora": [], "rows": []}
    if pairs:
        connection.execute(SQL["erase_vectors"], values)
        keys = drop_chunks(connection, values["rows"], totals)
        for row in locked:
            totals.published(row["corpus"], -1 if row["chunk_count"] else 0)
        add_totals(connection, totals)
    connection.execute(SQL["blank_documents"], {"ids": ids})
    terms = columns_of(("p_corpora", "terms", "p_rows"), keys) if keys else {}
    empty: dict[str, list[int]] = {"p_corpora": [], "terms": [], "p_rows": []}
    left = cursor.execute(SQL["left_of_erased"], {"ids": ids, **values, **empty, **terms}).fetchone()
    counted = cursor.execute(SQL["erased"], asked).fetchone()
    return Erased(**(counted or {}), **(left or {}))
