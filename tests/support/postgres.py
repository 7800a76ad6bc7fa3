"""A real Postgres for tests: one server a session, one migrated database a test.

A copy of the migrated database takes ten times the CPU of emptying one. So a database in which a test left
nothing but a few rows is emptied and used again; else the next test gets a copy.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from local.backends.postgres import EmbeddedPostgres, create_database, drop_database
from sql.migrate import limit_database, migrate, owner_connection
from tests.support import pooled_runs
from tests.support.pgbouncer import NoPgBouncer, program
from tests.support.pooler import Chain, chain

_GROWN: Final = 1 << 20
"""Bytes beyond the size of a copy at which a database has other plans than one: it is not used again."""
_CATALOGS: Final = (
    *("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_index", "pg_trigger", "pg_proc"),
    *("pg_type", "pg_namespace", "pg_extension", "pg_policy", "pg_default_acl"),
    *("pg_statistic", "pg_statistic_ext"),
)
_STATE: Final = f"""
SELECT concat_ws(' ',
    {", ".join(f"(SELECT (count(*), sum(xmin::text::bigint)) FROM {name})" for name in _CATALOGS)},
    (SELECT sum(reltuples) FROM pg_class WHERE relnamespace = 'public'::regnamespace),
    (SELECT (datacl, datallowconn, datconnlimit) FROM pg_database WHERE datname = current_database()),
    (SELECT array_agg((setrole, setconfig) ORDER BY setrole) FROM pg_db_role_setting
     WHERE setdatabase = (SELECT oid FROM pg_database WHERE datname = current_database()))),
    pg_database_size(current_database())
"""
"""What is not rows: schema, statistics and settings, by who wrote them last; and the size."""
_OTHERS: Final = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()
"""
_TABLES: Final = """
SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
"""
_SEQUENCES: Final = """
SELECT format('SELECT setval(%L, %s, %L)', seqrelid::regclass, coalesce(last, seqstart), last IS NOT NULL)
FROM pg_sequence CROSS JOIN pg_sequence_last_value(seqrelid) AS last
"""


class Databases:
    """The databases of one server for one test each, copied from `migrated`."""

    def __init__(self, server: str, name: str = "test") -> None:
        self._server = server
        self._name = name
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._states: dict[str, tuple[str, int]] = {}
        """Of each database when it was new."""
        self._emptying = ""
        """Statements that bring the rows of any of them back to those of `migrated`."""

    def take(self) -> str:
        """Return the URL of a migrated database without rows of a test."""
        if self._free:
            return self._free.pop()
        url = create_database(self._server, f"{self._name}_{next(self._numbers)}", template="migrated")
        # The settings of a database are not copied with it.
        with owner_connection(url) as connection:
            limit_database(connection)
            self._states[url] = self._state(connection)
            self._emptying = self._emptying or _emptying(connection)
        return url

    def give_back(self, url: str, *, again: bool) -> None:
        """End what is connected and empty the database for another test, or drop it unless `again`."""
        if again and self._emptied(url):
            self._free.append(url)
        else:
            drop_database(self._server, urlsplit(url).path[1:])

    def _emptied(self, url: str) -> bool:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(_OTHERS)
                (state, size), (new, first) = self._state(connection), self._states[url]
                if state != new or size > first + _GROWN:
                    return False
                connection.execute(self._emptying.encode())
        except psycopg.Error:  # a test may have made it unusable
            return False
        return True

    @staticmethod
    def _state(connection: psycopg.Connection[Any]) -> tuple[str, int]:
        found = connection.execute(_STATE).fetchone()
        assert found is not None
        return found


def _emptying(connection: psycopg.Connection[Any]) -> str:
    """Return statements that leave exactly the rows and numbers that there are now, whatever was added."""
    statements = ["SET session_replication_role = replica"]  # no foreign key, and no trigger that refuses
    for (table,) in connection.execute(_TABLES).fetchall():
        statements.append(f"DELETE FROM {table}")
        rows = connection.execute(f"SELECT array_agg(each::text) FROM {table} AS each".encode()).fetchone()
        if rows and rows[0]:
            values = sql.Literal(rows[0]).as_string(connection)
            statements.append(
                f"INSERT INTO {table} OVERRIDING SYSTEM VALUE"
                f" SELECT (row::{table}).* FROM unnest({values}::text[]) AS row"
            )
    statements += [statement for (statement,) in connection.execute(_SEQUENCES)]
    return ";".join(statements)


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the server's URL; a database `migrated` on it has every migration."""
    server = EmbeddedPostgres(Path(tmp_path_factory.mktemp("postgres")))
    url = server.start()
    try:
        migrate(create_database(url, "migrated"))
        with pooled_runs.before(urlsplit(url).port or 0):
            yield url
    finally:
        server.stop()
        server.delete()


@pytest.fixture(scope="session")
def postgres_chain(postgres_server: str) -> Iterator[Chain]:
    """Yield a chain before the server; skipped where PgBouncer cannot be had."""
    try:
        program()
    except NoPgBouncer as error:
        pytest.skip(str(error))
    with chain(urlsplit(postgres_server).port or 0) as made:
        yield made


@pytest.fixture(scope="session")
def postgres_databases(postgres_server: str) -> Databases:
    """Return what hands out the server's databases."""
    return Databases(postgres_server)


@pytest.fixture
def database_url(postgres_databases: Databases, request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a migrated database with no rows of any test."""
    url = postgres_databases.take()
    yield url
    # A pooler keeps connections to a database by its name.
    pooled = pooled_runs.pooled(url) != url or "postgres_chain" in request.fixturenames
    postgres_databases.give_back(url, again=not pooled)
