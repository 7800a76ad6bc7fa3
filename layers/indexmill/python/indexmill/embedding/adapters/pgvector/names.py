"""Numbers of corpora and spaces, cached per process; generations; targets of jobs; chunks of the day."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict

from psycopg.rows import dict_row, scalar_row

from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.ports import Space
from indexmill.embedding.targets import JobTarget
from indexmill.platform.postgres.database import Connection, Database

_REMEMBERED = 10_000


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
            columns = {
                "keys": list(unknown),
                "callers": [target.caller_id for target in unknown.values()],
                "names": [target.corpus_name for target in unknown.values()],
            }
            connection.execute(SQL["add_corpora"], columns)
            self.find_corpora(connection, unknown)
        for space in spaces:
            if space not in self.spaces:
                connection.execute(SQL["add_space"], asdict(space))
                self.find_space(connection, space)

    def find_corpora(self, connection: Connection, keys: Collection[str]) -> None:
        """Remember those of the corpora that exist."""
        self.corpora.update(connection.execute(SQL["find_corpora"], {"keys": list(keys)}).fetchall())

    def find_space(self, connection: Connection, space: Space) -> int | None:
        """Return the space's number, None when nothing was ever kept in it."""
        if space not in self.spaces:
            row = (
                connection.cursor(row_factory=scalar_row).execute(SQL["find_space"], asdict(space)).fetchone()
            )
            if row is None:
                return None
            self.spaces[space] = int(row)
        return self.spaces[space]


class PostgresGenerations:
    """Hands out generation numbers, which only grow; gaps are harmless."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def next(self) -> int:
        """Return a number larger than every one before."""

        def work(connection: Connection) -> int:
            row = connection.cursor(row_factory=scalar_row).execute(SQL["next_generation"]).fetchone()
            return int(row or 0)

        return self._database.read(work)


class PostgresJobTargets:
    """Reads a job's document by the one function that shows it to this service."""

    def __init__(self, database: Database) -> None:
        """Nothing is read yet."""
        self._database = database

    def find(self, job_id: str) -> JobTarget | None:
        """Return the job's; None for an unknown one."""

        def work(connection: Connection) -> JobTarget | None:
            cursor = connection.cursor(row_factory=dict_row)
            row = cursor.execute(SQL["target_of_job"], {"job_id": job_id}).fetchone()
            if row is None:
                return None
            status, attempt, generation = (row.pop(name) for name in ("status", "attempt", "generation"))
            return JobTarget(Target(**row), status, attempt, generation)

        return self._database.read(work)


class PostgresChunkCounts:
    """ChunkCounts by one stored function, which may do what Embedding's own login may not."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database

    def add(self, caller_id: str, chunks: int, most: int) -> bool:
        """Add chunks to today's; False when the sum would be more than `most`."""
        values = {"caller_id": caller_id, "chunks": chunks, "most": most}

        def work(connection: Connection) -> bool:
            cursor = connection.cursor(row_factory=scalar_row)
            return cursor.execute(SQL["count_caller_chunks"], values).fetchone() is not None

        # Repeated after a lost answer it may count twice: on the safe side.
        return self._database.read(work)
