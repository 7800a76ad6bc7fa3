"""Corpora in Postgres: their names, figures and grants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from indexmill.contracts.http_corpora import Corpus, Grant
from indexmill.embedding.adapters.pgvector.search import named_values
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.corpora import Who
from indexmill.embedding.ports import Named
from indexmill.platform.postgres.database import Connection, Database

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class PostgresCorpora:
    """`CorpusRows` and `Holdings` over the tables of the index; each call is one statement."""

    database: Database

    def list(self, of: Named, after: tuple[str, str] | None, limit: int) -> Sequence[Corpus]:
        """Return the corpora that the caller may read, by name and id, behind that name and id."""
        name, public_id = after or (None, None)
        place = {"after": name, "after_id": public_id, "limit": limit}
        rows = self._rows("list_corpora", {"owner": of.owner, "caller_id": of.caller_id, **place})
        return [Corpus(**row) for row in rows]

    def find(self, corpus: Named) -> Corpus | None:
        """Return the corpus; None for one that is unknown or that the caller may not read."""
        rows = self._rows("find_corpus", named_values([corpus]))
        return Corpus(**rows[0]) if rows else None

    def grants(self, corpus: Named) -> Sequence[Grant] | None:
        """Return who may read the owner's corpus; None for an unknown one."""
        rows = self._rows("corpus_grants", _own(corpus))
        return [Grant(**row) for row in rows if row["caller_id"] is not None] if rows else None

    def rename(self, corpus: Named, name: str, who: Who) -> bool | None:
        """Give the owner's corpus the name; False when another one has it, None for an unknown corpus."""
        return self._changed("rename_corpus", corpus, who, new_name=name)

    def share(self, corpus: Named, grantee: str, most: int, who: Who) -> bool | None:
        """Let a caller read the owner's corpus; False when `most` others may already, None as `rename`."""
        return self._changed("share_corpus", corpus, who, grantee=grantee, most=most)

    def unshare(self, corpus: Named, grantee: str, who: Who) -> bool | None:
        """Let a caller read the owner's corpus no more; None for an unknown corpus."""
        return self._changed("unshare_corpus", corpus, who, grantee=grantee)

    def number(self, corpus: Named) -> int | None:
        """Return the corpus's number; None for one that is unknown or that the caller may not read."""
        rows = self._rows("named_corpora", named_values([corpus]))
        return rows[0]["corpus"] if rows else None

    def figures(self, corpus: int) -> dict[str, Any]:
        """Return the stored figures by name, and when a publish changed them last."""
        return self._rows("stored_figures", {"corpus": corpus})[0]

    def documents(self, corpus: int, after: int, limit: int) -> Rows:
        """Return what there is of the documents behind the row `after`."""
        return self._rows("held_documents", {"corpus": corpus, "after": after, "limit": limit})

    def postings(self, corpus: int, first: int, behind: int) -> int:
        """Count the postings of terms from `first` on, in front of `behind`."""
        rows = self._rows("held_postings", {"corpus": corpus, "first": first, "behind": behind})
        return int(rows[0]["postings"])

    def recount(self, corpus: int) -> None:
        """Have documents and bytes counted again, by the sweeper."""
        self._rows("recount_corpus", {"corpus": corpus})

    def _changed(self, statement: str, corpus: Named, who: Who, **values: object) -> bool | None:
        number = self._rows(statement, {**_own(corpus), **values, "who": Jsonb(who)})[0]["corpus"]
        return None if number is None else bool(number)

    def _rows(self, statement: str, values: dict[str, Any]) -> Rows:
        def work(connection: Connection) -> Rows:
            return connection.cursor(row_factory=dict_row).execute(SQL[statement], values).fetchall()

        return self.database.read(work)


def _own(corpus: Named) -> dict[str, Any]:
    return {"owner": corpus.owner, "name": corpus.name, "public_id": corpus.public_id}
