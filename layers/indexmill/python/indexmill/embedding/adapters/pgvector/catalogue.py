"""Documents of a corpus as a caller browses them, in Postgres."""

from __future__ import annotations

from typing import Any

from psycopg.rows import dict_row

from indexmill.contracts.content import SourceText
from indexmill.contracts.http_documents import DocumentChunk, DocumentItem
from indexmill.embedding.adapters.pgvector.search import named_values
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.browse import ChunksRead, DocumentFilter, Place, TextRead
from indexmill.embedding.ports import Named
from indexmill.platform.postgres.database import Connection, Database


class PostgresCatalogue:
    """`Catalogue` over the tables of the index. All calls raise TransientError(database_unavailable)."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def corpus(self, corpus: Named) -> tuple[int, bool] | None:
        """Return the corpus's number and whether it is shared; None for one that the caller may not read."""
        rows = self._rows("named_corpora", named_values([corpus]))
        return (rows[0]["corpus"], rows[0]["shared"]) if rows else None

    def documents(self, corpus: int, wanted: DocumentFilter) -> list[tuple[Place, DocumentItem]]:
        """Return the documents that match, in the order of their URLs, each with its place in it."""
        values = {
            "corpus": corpus,
            "after_url": wanted.after[0],
            "after_id": wanted.after[1],
            "below": wanted.below,
            "content_type": wanted.content_type,
            "fresh": wanted.stale is False,
            "limit": wanted.limit,
        }
        # One for each index.
        if wanted.stale:
            name = "list_stale_documents"
        else:
            name = "list_documents" if wanted.content_type is None else "list_typed_documents"
        rows = self._rows(name, values)
        return [((row["url"], row.pop("row_id")), DocumentItem(**row)) for row in rows]

    def document(self, corpus: int, document_id: str) -> DocumentItem | None:
        """Return the published version; None for a document that is not in the corpus."""
        rows = self._rows("find_document", {"corpus": corpus, "document_id": document_id})
        return DocumentItem(**rows[0]) if rows else None

    def chunks(self, corpus: int, document_id: str, after: int, limit: int) -> ChunksRead | None:
        """Return the published version's chunks behind the ordinal `after`; None as `document`."""
        values = {"corpus": corpus, "document_id": document_id, "after": after, "limit": limit}
        rows = self._rows("document_chunks", values)
        if not rows:
            return None
        generations = [row.pop("generation") for row in rows]
        return generations[0], [DocumentChunk(**row) for row in rows if row["chunk_id"] is not None]

    def text(self, corpus: int, document_id: str) -> TextRead | None:
        """Return the published version's text; None as `document`."""
        rows = self._rows("document_text", {"corpus": corpus, "document_id": document_id})
        if not rows:
            return None
        row = rows[0]
        if not row["is_kept"]:
            return row["generation"], None, ""
        source = SourceText(rest=row["rest"], sha256=row["sha256"], length=row["length"])
        pieces = zip(row["starts"], row["ends"], row["texts"], strict=True)
        return row["generation"], source.whole(pieces), source.sha256

    def _rows(self, name: str, values: dict[str, Any]) -> list[dict[str, Any]]:
        def work(connection: Connection) -> list[dict[str, Any]]:
            return connection.cursor(row_factory=dict_row).execute(SQL[name], values).fetchall()

        return self._database.read(work)
