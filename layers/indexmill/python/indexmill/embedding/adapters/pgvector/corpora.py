"""Corpora in Postgres: their names and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from indexmill.contracts.http_corpora import Corpus
from indexmill.embedding.adapters.pgvector.search import named_values
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.ports import Named
from indexmill.platform.postgres.database import Connection, Database


@dataclass(frozen=True, slots=True)
class PostgresCorpora:
    """`CorpusRows` over the tables of migration 0037; each call is one statement."""

    database: Database

    def list(self, of: Named, after: tuple[str, str] | None, limit: int) -> Sequence[Corpus]:
        """Return the corpora that the caller may read, by name and id, behind that name and id."""
        name, public_id = after or (None, None)
        return self._corpora("list_corpora", owner=of.owner, after=name, after_id=public_id, limit=limit)

    def find(self, corpus: Named) -> Corpus | None:
        """Return the corpus; None for one that is unknown or that the caller may not read."""
        found = self._corpora("find_corpus", **named_values([corpus]))
        return found[0] if found else None

    def rename(self, corpus: Named, name: str, who: Mapping[str, str | None]) -> bool | None:
        """Give the owner's corpus the name; False when another one has it, None for an unknown corpus."""
        values = {
            **{"owner": corpus.owner, "name": corpus.name, "public_id": corpus.public_id},
            **{"new_name": name, "who": Jsonb(dict(who))},
        }

        def work(connection: Connection) -> bool | None:
            (number,) = connection.execute(SQL["rename_corpus"], values).fetchall()[0]
            return None if number is None else bool(number)

        return self.database.read(work)

    def _corpora(self, statement: str, **values: object) -> Sequence[Corpus]:
        def work(connection: Connection) -> Sequence[Corpus]:
            rows = connection.cursor(row_factory=dict_row).execute(SQL[statement], values).fetchall()
            return [Corpus(**row) for row in rows]

        return self.database.read(work)
