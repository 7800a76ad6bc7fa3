"""The vector index in Postgres: pgvector for meaning, a postings table for words."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TypeVar

import psycopg
from psycopg.rows import dict_row, scalar_row

from indexmill.contracts.content import Chunk
from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError, failure
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.messages import Target
from indexmill.embedding.adapters.pgvector import publish, search
from indexmill.embedding.adapters.pgvector.publish import Numbers
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.analyzer import term_of_text
from indexmill.embedding.documents import check, newest, outcomes
from indexmill.embedding.ports import (
    DocumentVersion,
    Hit,
    Lists,
    Named,
    PublishOutcome,
    SearchQuery,
    Space,
    Vector,
)
from indexmill.embedding.targets import JobTarget
from indexmill.platform.postgres.database import Connection, Database, storable

T = TypeVar("T")


class PgVectorIndex:
    """`VectorIndex` over the tables of migration 0002. Chunk ids are hex digests of 32 bytes."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._names = Names()
        self._row_ids = RowIds()
        self._found: set[str | Named] = set()

    def stored(self, space: Space, chunk_ids: Sequence[str]) -> set[str]:
        """Return those of `chunk_ids` whose vector in `space` is already kept."""
        keys = [bytes.fromhex(chunk_id) for chunk_id in chunk_ids]

        def work(connection: Connection) -> set[str]:
            number = self._names.find_space(connection, space)
            if number is None:
                return set()
            values = {"space": number, "chunk_ids": keys}
            rows = connection.cursor(row_factory=scalar_row).execute(SQL["stored_chunks"], values)
            return set(rows.fetchall())

        return self._read(work) if keys else set()

    def copies(self, space: Space, chunks: Mapping[str, tuple[Target, Chunk]]) -> dict[str, Vector]:
        """Return vectors of equal texts in other documents of the same caller and corpus, by chunk id."""
        keys, targets = list(chunks), [target for target, _ in chunks.values()]
        texts = [[storable(chunk.context), storable(chunk.text)] for _, chunk in chunks.values()]

        def work(connection: Connection) -> dict[str, Vector]:
            number = self._names.find_space(connection, space)
            numbers = self._names.corpora
            self._names.find_corpora(connection, {each.corpus_key for each in targets} - numbers.keys())
            known = [at for at, target in enumerate(targets) if target.corpus_key in numbers]
            if number is None or not known:
                return {}
            values = {
                "space": number,
                "ats": known,
                "corpora": [numbers[targets[at].corpus_key] for at in known],
                "terms": [term_of_text(*texts[at]) for at in known],
                "callers": [targets[at].caller_id for at in known],
            }
            rows = connection.execute(SQL["vectors_of_texts"], values).fetchall()
            return {keys[at]: json.loads(vector) for at, *found, vector in rows if found == texts[at]}

        return self._read(work) if keys else {}

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Make each version what search sees of its document; all of the call's versions or none.

        Also raises TransientError(embedding_incomplete) when a chunk has neither a new nor a kept vector,
        which happens when another writer replaced the document in between: ask `stored` again.
        """
        chosen = newest(versions)
        for version in chosen:
            check(version)
        if not chosen:
            return []
        self._read(lambda connection: self._names.ensure(connection, chosen))
        # What is older than its corpus' deletion has no corpus.
        chosen = [each for each in chosen if each.target.corpus_key in self._names.corpora]
        published = self._guarded(
            lambda: self._database.run(
                lambda connection: publish.publish(connection, chosen, self._names, self._row_ids.take)
            )
        )
        return outcomes(versions, published)

    def erase(self, job_id: str, document_ids: Sequence[str], generation: int) -> Erased:
        """Erase the documents, but for what a newer generation published of them; return what there was."""
        # Few jobs delete: what the transaction needs is loaded then.
        from indexmill.embedding.adapters.pgvector.erase import erase

        return self._guarded(
            lambda: self._database.run(lambda connection: erase(connection, job_id, document_ids, generation))
        )

    def corpus_exists(self, corpus: str | Named) -> bool:
        """Return whether the corpus was ever submitted to, as far as is known: names change."""
        if corpus not in self._found:
            values = search.named_values([corpus])
            rows = self._read(lambda connection: connection.execute(SQL["named_corpora"], values).fetchall())
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found.update([corpus] if rows else [])
        return corpus in self._found

    def lists(self, query: SearchQuery) -> Lists:
        """Return the candidates among the chunks of published versions."""
        found = self._read(lambda connection: search.lists(connection, query))
        pairs = zip(query.corpora, found.keys, strict=True)
        self._found.difference_update(corpus for corpus, key in pairs if key is None)
        return found

    def hits(self, corpora: Sequence[str], chunk_ids: Sequence[str], neighbours: int = 0) -> dict[str, Hit]:
        """Return those of the chunks that are published in one of the corpora, by chunk id."""
        return self._read(lambda connection: search.hits(connection, corpora, chunk_ids, neighbours))

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._guarded(lambda: self._database.read(work))

    def _guarded(self, call: Callable[[], T]) -> T:
        """Run `call`; translate the database's errors into coded ones."""
        try:
            return call()
        except psycopg.errors.ForeignKeyViolation as error:
            self._names.clear()  # the corpus was deleted; the next try creates it again
            raise _unavailable() from error
        except psycopg.DataError as error:
            raise failure(ErrorCode.VECTOR_REJECTED) from error
        except psycopg.OperationalError as error:
            raise _unavailable() from error
        except TransientError as error:
            if error.code == ErrorCode.DATABASE_UNAVAILABLE:
                raise _unavailable() from error
            raise


def _unavailable() -> IndexmillError:
    return failure(ErrorCode.SEARCH_UNAVAILABLE, retry_after=5)


BLOCK = 64
"""Chunk rows per number of the sequence `chunk_blocks`."""


@dataclass(slots=True)
class RowIds:
    """Hands out chunk row ids from blocks that this process took; what is left is used by the next batch."""

    free: list[int] = field(default_factory=list)

    def take(self, connection: Connection, count: int) -> list[int]:
        """Return `count` ids that no other process gets."""
        lacking = count - len(self.free)
        if lacking > 0:
            values = {"count": -(-lacking // BLOCK)}
            cursor = connection.cursor(row_factory=scalar_row)
            for block in cursor.execute(SQL["take_row_blocks"], values).fetchall():
                self.free += range(block * BLOCK, (block + 1) * BLOCK)
        taken, self.free = self.free[:count], self.free[count:]
        return taken


_REMEMBERED = 10_000


class Names(Numbers):
    """Looks numbers up once. They never change; a corpus that is deleted is forgotten by `clear`."""

    def clear(self) -> None:
        """Forget everything."""
        self.corpora.clear()
        self.spaces.clear()

    def ensure(self, connection: Connection, versions: Collection[DocumentVersion]) -> None:
        """Assign a number to each corpus and space that has none; a deleted corpus gets none again.

        Runs outside of any transaction, so that concurrent writers do not wait for each other's commit.
        """
        if len(self.corpora) > _REMEMBERED:
            self.corpora.clear()
        targets = [version.target for version in versions]
        unknown = {target.corpus_key: target for target in targets if target.corpus_key not in self.corpora}
        if unknown:
            columns = {
                "keys": list(unknown),
                "callers": [target.caller_id for target in unknown.values()],
                "names": [target.corpus_name for target in unknown.values()],
            }
            connection.execute(SQL["add_corpora"], columns)
            self.find_corpora(connection, unknown)
        for space in {version.space for version in versions}:
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

    def place(self, owner: str, caller_id: str, name: str) -> tuple[str, int, int]:
        """Return the key of the corpus, which is made when it is new, such a number, and its chunks."""
        values = {"owner": owner, "caller_id": caller_id, "name": name}

        def work(connection: Connection) -> tuple[str, int, int]:
            key, generation, chunks = connection.execute(SQL["place_in_corpus"], values).fetchall()[0]
            return str(key), int(generation), int(chunks)

        return self._database.read(work)

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
