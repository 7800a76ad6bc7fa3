"""The vector index in Postgres: pgvector for meaning, a postings table for words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg
from psycopg.rows import scalar_row

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError, failure
from indexmill.embedding.adapters.pgvector import publish, search
from indexmill.embedding.adapters.pgvector.names import Names
from indexmill.embedding.adapters.pgvector.publish import RowIds
from indexmill.embedding.adapters.pgvector.statements import SQL
from indexmill.embedding.documents import check, newest, outcomes
from indexmill.embedding.ports import DocumentVersion, Found, PublishOutcome, SearchQuery, Space
from indexmill.platform.postgres.database import Connection, Database

T = TypeVar("T")


class PgVectorIndex:
    """`VectorIndex` over the tables of migration 0002. Chunk ids are hex digests of 32 bytes."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._names = Names()
        self._row_ids = RowIds()

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
        targets, spaces = [version.target for version in chosen], {version.space for version in chosen}
        self._read(lambda connection: self._names.ensure(connection, targets, spaces))
        published = self._guarded(
            lambda: self._database.run(
                lambda connection: publish.publish(connection, chosen, self._names, self._row_ids)
            )
        )
        return outcomes(versions, published)

    def corpus_exists(self, corpus_key: str) -> bool:
        """Return whether the corpus was ever submitted to."""
        if corpus_key not in self._names.corpora:
            self._read(lambda connection: self._names.find_corpora(connection, [corpus_key]))
        return corpus_key in self._names.corpora

    def search(self, query: SearchQuery) -> Found:
        """Return at most `top_k` chunks of published versions, best first, with scores above 0, at most 1.

        With text and vector the score is the fused rank's share of the best possible one; with text alone
        BM25's share of what no chunk can exceed; with a vector alone the cosine similarity (below 0 counts as
        almost 0).
        """
        return self._read(lambda connection: search.search(connection, query))

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
