"""Indexes of vectors are built beside searches and writers; what a broken build leaves is dropped."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql

from indexmill.embedding.adapters.pgvector import search
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import Space
from indexmill.platform.postgres.database import Database
from sql.build_index import BuildError, build_connection, build_due
from tests.support.index_builders import find, target, vector_of, version
from tests.support.repository import ROOT
from tests.support.stack import eventually

pytestmark = pytest.mark.integration

Rows = psycopg.Connection[tuple[Any, ...]]
Build = Callable[[], "Future[list[int]]"]
INDEXES = """
SELECT c.relname::text, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid = 'vectors'::regclass AND NOT i.indisprimary ORDER BY 1
"""
WAITING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND query LIKE 'CREATE INDEX CONCURRENTLY%' AND wait_event_type = 'Lock'
"""
BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> %s"
CHUNKS = 200


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    """Yield a connection to a corpus of 200 chunks that counts as a large one."""
    with (
        contextlib.closing(Database(database_url)) as database,
        psycopg.connect(database_url, autocommit=True) as connection,
    ):
        index = PgVectorIndex(database)
        index.publish([version([f"text {number}" for number in range(CHUNKS)])])
        grow(connection, search.EXACT_LIMIT)
        yield connection


@pytest.fixture
def builds(database_url: str) -> Iterator[Build]:
    """Yield a function that starts a build in a thread."""
    with ThreadPoolExecutor(2) as threads:
        yield lambda: threads.submit(build_due, database_url)


@pytest.fixture
def index(database_url: str) -> Iterator[PgVectorIndex]:
    """Yield the index as a function uses it; nothing waits for a lock for long."""
    with contextlib.closing(Database(f"{database_url}?options=-c%20lock_timeout%3D2s")) as database:
        yield PgVectorIndex(database)


def grow(connection: Rows, chunks: int) -> None:
    """Let the corpus count as one of so many chunks."""
    connection.execute("UPDATE corpus_totals SET chunks = 0")
    connection.execute(
        "UPDATE corpus_totals SET chunks = %s WHERE stripe = (SELECT min(stripe) FROM corpus_totals)",
        (chunks,),
    )


def due(connection: Rows) -> list[tuple[Any, ...]]:
    found = connection.execute("SELECT over_rows, lists FROM index_builds_due('1 hour') WHERE outgrown")
    return found.fetchall()


@contextlib.contextmanager
def old_snapshot(database_url: str) -> Iterator[None]:
    """Keep a snapshot open: a build waits at its end for all that are older than it."""
    with psycopg.connect(database_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT FROM spaces")
        yield


def held(connection: Rows) -> int:
    """Return the server process of a build once it waits for a snapshot."""
    eventually(lambda: connection.execute(WAITING).fetchone() is not None, "the build waits")
    (pid,) = connection.execute(WAITING).fetchone() or (0,)
    return int(pid)


def test_an_index_is_due_by_size_and_by_growth(rows: Rows) -> None:
    grow(rows, search.EXACT_LIMIT - 1)
    assert due(rows) == []
    grow(rows, search.EXACT_LIMIT)
    assert due(rows) == [(search.EXACT_LIMIT, search.lists_of(search.EXACT_LIMIT))]
    rows.execute("UPDATE spaces SET indexed_rows = 10000")
    grow(rows, 39_999)
    assert due(rows) == []
    grow(rows, 40_000)
    assert due(rows) == [(40_000, search.lists_of(40_000))]
    rows.execute("UPDATE spaces SET index_tried_at = now() - interval '59 minutes'")
    assert due(rows) == []
    rows.execute("UPDATE spaces SET index_tried_at = now() - interval '61 minutes'")
    assert len(due(rows)) == 1
    rows.execute("UPDATE spaces SET dimension = 4001")
    assert due(rows) == []


@pytest.mark.parametrize("count", [1, 255, 256, 257, 10_000, 999_999, 1_000_001, 30_000_000])
def test_search_and_build_agree_on_the_lists(rows: Rows, count: int) -> None:
    assert rows.execute("SELECT ivfflat_lists(%s)", (count,)).fetchone() == (search.lists_of(count),)


def test_an_index_replaces_the_one_before(rows: Rows, database_url: str, index: PgVectorIndex) -> None:
    assert build_due(database_url) == [1]
    assert build_due(database_url) == []
    assert rows.execute("SELECT indexed_rows FROM spaces").fetchone() == (10_000,)
    before = rows.execute("SELECT 'vectors_space_1'::regclass::oid").fetchone()
    grow(rows, 40_000)
    # A build that finds the one before still connected, with its lock, leaves it to the next.
    eventually(lambda: build_due(database_url) == [1], "it is built again")
    assert rows.execute("SELECT 'vectors_space_1'::regclass::oid").fetchone() != before
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_1", True)]
    assert "text 7" in find(index, None, vector=vector_of("text 7"), top_k=5)


def test_searches_and_writes_wait_for_no_build(
    rows: Rows, database_url: str, builds: Build, index: PgVectorIndex
) -> None:
    for chunks in (10_000, 40_000):
        grow(rows, chunks)
        with old_snapshot(database_url):
            building = builds()
            pid = held(rows)
            texts = [f"written while {chunks}"]
            index.publish([version(texts, to=target(f"https://a.example/{chunks}"))])
            assert texts[0] in find(index, None, vector=vector_of(texts[0]), top_k=5)
            assert rows.execute(BLOCKED, (pid,)).fetchone() == (0,)
            assert not building.done()
        assert building.result(30) == [1]
        assert texts[0] in find(index, None, vector=vector_of(texts[0]), top_k=5)


def test_a_killed_build_leaves_an_index_that_the_next_one_drops(
    rows: Rows, database_url: str, builds: Build, index: PgVectorIndex
) -> None:
    with old_snapshot(database_url):
        building = builds()
        rows.execute("SELECT pg_terminate_backend(%s)", (held(rows),))
        with pytest.raises(psycopg.OperationalError):
            building.result(30)
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_1_new", False)]
    assert rows.execute("SELECT indexed_rows FROM spaces").fetchone() == (0,)
    assert find(index, None, vector=vector_of("text 7"))[0] == "text 7"
    assert build_due(database_url) == [1]
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_1", True)]


def test_an_index_that_was_replaced_and_not_dropped_is_dropped(rows: Rows, database_url: str) -> None:
    assert build_due(database_url) == [1]
    rows.execute("CREATE INDEX vectors_space_1_old ON vectors (chunk)")
    assert rows.execute("SELECT space FROM index_builds_due('0 s')").fetchall() == [(1,)]
    assert build_due(database_url) == []
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_1", True)]


def test_one_builds_at_a_time(rows: Rows, database_url: str, builds: Build) -> None:
    with old_snapshot(database_url):
        building = builds()
        held(rows)
        assert builds().result(30) == []
        assert not building.done()
    assert building.result(30) == [1]


def test_a_build_that_would_take_too_long_is_not_begun(rows: Rows, database_url: str) -> None:
    grow(rows, 10_000_000)
    with pytest.raises(BuildError, match=r"over 10000000 rows takes about 40 s.*build_index\.py"):
        build_due(database_url, limit_s=30, again_after="1 hour")
    assert rows.execute(INDEXES).fetchall() == []
    assert build_due(database_url, limit_s=30, again_after="1 hour") == []
    assert build_due(database_url) == [1]


def test_one_that_would_take_too_long_keeps_no_other_back(
    rows: Rows, database_url: str, index: PgVectorIndex
) -> None:
    rows.execute("UPDATE spaces SET dimension = 4000")
    small = Space("small", 4)
    index.publish([version(["another model"], to=target("https://a.example/small"), space=small)])
    grow(rows, 1_000_000)
    with pytest.raises(BuildError, match=r"the index of space 1 .* takes about 4000 s.*; built: \[2\]"):
        build_due(database_url, limit_s=60, again_after="1 hour")
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_2", True)]


@pytest.mark.parametrize(
    ("cache", "memory"), [("100MB", "64MB"), ("512MB", "128MB"), ("1GB", "256MB"), ("64GB", "512MB")]
)
def test_a_build_takes_memory_by_the_size_of_the_server(
    rows: Rows, database_url: str, cache: str, memory: str
) -> None:
    name = sql.Identifier(rows.info.dbname)
    set_it = sql.SQL("ALTER DATABASE {} SET effective_cache_size = {}")
    rows.execute(set_it.format(name, sql.Literal(cache)))
    try:
        with contextlib.closing(build_connection(database_url)) as connection:
            assert connection.execute("SHOW maintenance_work_mem").fetchone() == (memory,)
            assert connection.execute("SHOW client_connection_check_interval").fetchone() == ("5s",)
            assert connection.execute("SHOW statement_timeout").fetchone() == ("0",)
            assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)
    finally:
        rows.execute(sql.SQL("ALTER DATABASE {} RESET effective_cache_size").format(name))


def test_a_build_that_takes_too_long_is_given_up(rows: Rows, database_url: str) -> None:
    with old_snapshot(database_url), pytest.raises(BuildError, match=r"took longer than 0\.5 s"):
        build_due(database_url, limit_s=0.5)
    assert rows.execute(INDEXES).fetchall() == []


def test_the_command_builds_what_is_due(rows: Rows, database_url: str) -> None:
    command = [sys.executable, ROOT / "sql" / "build_index.py", database_url]
    said = [subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)]
    assert said == ["space 1: built\n", "nothing to do\n"]
    assert rows.execute(INDEXES).fetchall() == [("vectors_space_1", True)]
