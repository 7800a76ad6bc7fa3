"""Numbers of corpora and embedding spaces in the index's tables, cached per process."""

from __future__ import annotations

from collections.abc import Collection

from indexmill.contracts.messages import Target
from indexmill.embedding.ports import Space
from indexmill.platform.postgres.database import Connection

_REMEMBERED = 10_000

_ADD_CORPORA = """
INSERT INTO corpora (corpus_key, caller_id, name)
SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]) AS added (corpus_key, caller_id, name)
WHERE NOT EXISTS (SELECT FROM corpora AS c WHERE c.corpus_key = added.corpus_key)
ORDER BY corpus_key
ON CONFLICT DO NOTHING
"""
_ADD_SPACE = """
INSERT INTO spaces (model, dimension) SELECT %(model)s, %(dimension)s
WHERE NOT EXISTS (SELECT FROM spaces WHERE model = %(model)s AND dimension = %(dimension)s)
ON CONFLICT DO NOTHING
"""


class Names:
    """Looks numbers up once. They never change; a corpus that is deleted is forgotten by `clear`."""

    def __init__(self) -> None:
        """Start with nothing remembered."""
        self.corpora: dict[str, int] = {}
        self.spaces: dict[Space, int] = {}

    def clear(self) -> None:
        """Forget everything."""
        self.corpora.clear()
        self.spaces.clear()

    def ensure(self, connection: Connection, targets: Collection[Target], spaces: Collection[Space]) -> None:
        """Assign a number to each corpus and space that has none.

        Runs outside of any transaction, so that concurrent writers do not wait for each other's commit.
        """
        if len(self.corpora) > _REMEMBERED:
            self.corpora.clear()
        unknown = {target.corpus_key: target for target in targets if target.corpus_key not in self.corpora}
        if unknown:
            columns = [(key, target.caller_id, target.corpus_name) for key, target in unknown.items()]
            connection.execute(_ADD_CORPORA, tuple(map(list, zip(*columns, strict=True))))
            self.find_corpora(connection, unknown)
        for space in spaces:
            if space not in self.spaces:
                values = {"model": space.model, "dimension": space.dimension}
                connection.execute(_ADD_SPACE, values)
                self.find_space(connection, space)

    def find_corpora(self, connection: Connection, keys: Collection[str]) -> None:
        """Remember those of the corpora that exist."""
        statement = "SELECT corpus_key, id FROM corpora WHERE corpus_key = ANY(%s)"
        self.corpora.update(connection.execute(statement, (list(keys),)).fetchall())

    def find_space(self, connection: Connection, space: Space) -> int | None:
        """Return the space's number, None when nothing was ever kept in it."""
        if space not in self.spaces:
            statement = "SELECT id FROM spaces WHERE model = %s AND dimension = %s"
            row = connection.execute(statement, (space.model, space.dimension)).fetchone()
            if row is None:
                return None
            self.spaces[space] = int(row[0])
        return self.spaces[space]
