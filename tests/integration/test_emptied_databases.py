"""A test's database is that of a test before it, emptied, unless that one changed more than rows."""

from __future__ import annotations

import uuid
from typing import Any

import psycopg
import pytest

from tests.support.postgres import Databases

pytestmark = [pytest.mark.integration, pytest.mark.direct]

HASH = "SELECT md5(string_agg(each::text, ',' ORDER BY each::text)) FROM {} AS each"
NUMBERS = "SELECT sequencename, last_value FROM pg_sequences ORDER BY sequencename"
TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"


def content(connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """Return a digest of each table's rows, and the last number of each sequence."""
    tables = [name for (name,) in connection.execute(TABLES).fetchall()]
    rows = {name: connection.execute(HASH.format(name).encode()).fetchone() for name in tables}
    return {**rows, "numbers": connection.execute(NUMBERS).fetchall()}


@pytest.fixture
def databases(postgres_server: str) -> Databases:
    return Databases(postgres_server, f"emptied_{uuid.uuid4().hex}")


def test_rows_and_numbers_are_those_of_a_new_database(databases: Databases) -> None:
    url = databases.take()
    with psycopg.connect(url, autocommit=True) as connection:
        new = content(connection)
        connection.execute("INSERT INTO corpora (corpus_key, caller_id, name) VALUES ('k', 'c', 'docs')")
        connection.execute("SELECT nextval('chunk_blocks')")
        connection.execute("DELETE FROM schema_migrations WHERE name LIKE '0001%'")
        assert content(connection) != new
        databases.give_back(url, again=True)
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    assert databases.take() == url
    with psycopg.connect(url, autocommit=True) as connection:
        assert content(connection) == new
    databases.give_back(url, again=False)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE more (id INTEGER)",
        "ALTER TABLE jobs ALTER COLUMN url SET STATISTICS 10",
        "ANALYZE schema_migrations",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = 64', current_database()); END $$",
        "INSERT INTO schema_migrations SELECT repeat(md5(n::text), 40), '' FROM generate_series(1, 2000) n",
    ],
)
def test_what_changed_more_than_a_few_rows_is_not_used_again(databases: Databases, change: str) -> None:
    url = databases.take()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(change.encode())
    databases.give_back(url, again=True)
    assert databases.take() != url
