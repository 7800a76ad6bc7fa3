"""Work of the database for a job: transactions, rows, index entries, write-ahead log and bytes on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import psycopg

_TABLES: Final = """
SELECT stats.relname, n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, pg_total_relation_size(stats.relid),
       (SELECT count(*) FROM pg_index WHERE indrelid = stats.relid)
FROM pg_stat_user_tables AS stats
"""
_SERVER: Final = """
SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn, xact_commit, blks_read
FROM pg_stat_database WHERE datname = current_database()
"""
_TOKENS: Final = "SELECT coalesce(sum(tokens), 0)::bigint, count(*) FROM chunks"


@dataclass(frozen=True, slots=True)
class TableLoad:
    """Counters of one table since the server's start."""

    inserted: int
    updated: int
    hot: int
    """Of the updated rows, those that needed no new index entries."""
    deleted: int
    bytes: int
    indexes: int

    @property
    def index_entries(self) -> int:
        """Return how many entries indexes got, at most: a partial index may leave a row out."""
        return (self.inserted + self.updated - self.hot) * self.indexes


@dataclass(frozen=True, slots=True)
class DatabaseLoad:
    """All counters at one moment."""

    wal_bytes: int
    commits: int
    tables: Mapping[str, TableLoad]
    tokens: int
    chunks: int

    @classmethod
    def now(cls, url: str) -> DatabaseLoad:
        """Read the counters of the database at `url`."""
        with psycopg.connect(url, autocommit=True) as connection:
            # A session's counters are written to the shared ones at most once a second.
            connection.execute("SELECT pg_sleep(1.1)")
            tables = {row[0]: TableLoad(*row[1:]) for row in connection.execute(_TABLES)}
            server = connection.execute(_SERVER).fetchone()
            texts = connection.execute(_TOKENS).fetchone()
        if server is None or texts is None:
            raise RuntimeError("the server has no statistics")
        return cls(int(server[0]), int(server[1]), tables, int(texts[0]), int(texts[1]))


def database_per_job(before: DatabaseLoad, after: DatabaseLoad, jobs: int) -> dict[str, Any]:
    """Return the database's work between two readings, per job."""
    rows = {"inserted": 0, "updated": 0, "deleted": 0, "index_entries": 0, "bytes": 0}
    by_table = {}
    for name, late in after.tables.items():
        early = before.tables[name]
        for kind in rows:
            rows[kind] += getattr(late, kind) - getattr(early, kind)
        written = late.inserted + late.updated - early.inserted - early.updated
        if written:
            by_table[name] = round(written / jobs, 2)
    return {
        "commits": round((after.commits - before.commits) / jobs, 2),
        "wal_bytes": round((after.wal_bytes - before.wal_bytes) / jobs),
        **{name: round(count / jobs, 1) for name, count in rows.items()},
        "rows_by_table": dict(sorted(by_table.items(), key=lambda item: -item[1])),
        "tokens": round((after.tokens - before.tokens) / jobs),
        "chunks": round((after.chunks - before.chunks) / jobs, 2),
    }
