"""Generation numbers of documents from a Postgres sequence."""

from __future__ import annotations

from indexmill.platform.postgres.database import Connection, Database


class PostgresGenerations:
    """Hands out numbers that only grow; gaps are harmless."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def next(self) -> int:
        """Return a number larger than every one before."""

        def work(connection: Connection) -> int:
            row = connection.execute("SELECT nextval('generation_seq')").fetchone()
            return int(row[0]) if row else 0

        return self._database.read(work)
