"""Behaviour of a real Postgres only: concurrent writers, a crash, exact clean-up, the approximate index."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import psycopg
import pytest

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.embedding.adapters.pgvector import publish, search
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.analyzer import count_terms
from indexmill.embedding.ports import PublishOutcome, Space
from indexmill.platform.postgres.database import Database
from sql.build_index import build_due
from tests.support.index_builders import SPACE, find, results, target, vector_of, version

Rows = psycopg.Connection[tuple[object, ...]]
TABLES = ("chunks", "vectors", "memberships", "postings")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


@pytest.fixture
def rows(database_url: str) -> Iterator[Rows]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@contextmanager
def opened(url: str) -> Iterator[PgVectorIndex]:
    """An index on a connection of its own."""
    with closing(Database(url)) as database:
        yield PgVectorIndex(database)


def _count(rows: Rows, table: str) -> int:
    found = rows.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    assert found is not None
    return int(str(found[0]))


def _assert_consistent(rows: Rows, texts: list[str]) -> None:
    """The tables hold exactly the chunks of `texts`, each below the heading that the builder gives it."""
    counts = [count_terms(f"Guide\n\n{text}") for text in texts]
    # Beside those of its words each chunk has one of its text.
    assert [_count(rows, table) for table in TABLES] == [len(texts)] * 3 + [
        sum(map(len, counts)) + len(texts)
    ]
    totals = rows.execute(
        "SELECT coalesce(sum(chunks), 0)::int8, coalesce(sum(words), 0)::int8 FROM corpus_totals"
    )
    assert totals.fetchone() == (len(texts), sum(count.total() for count in counts))


def test_nothing_is_left_of_what_was_replaced(database: Database, rows: Rows) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["alpha beta beta", "gamma", "delta epsilon"])])
    _assert_consistent(rows, ["alpha beta beta", "gamma", "delta epsilon"])
    index.publish([version(["gamma", "zeta"], 2)])
    _assert_consistent(rows, ["gamma", "zeta"])
    index.publish([version(["gamma", "zeta"], 3, space=Space("wide", 6))])
    _assert_consistent(rows, ["gamma", "zeta"])
    index.publish([version([], 4)])
    _assert_consistent(rows, [])


def test_postings_of_another_analyzer_are_dropped_too(database: Database, rows: Rows) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["alpha beta"])])
    rows.execute("UPDATE chunks SET analyzer_version = 0")
    rows.execute("UPDATE postings SET term = term # 1")
    index.publish([version(["gamma"], 2)])
    _assert_consistent(rows, ["gamma"])


def test_a_crash_before_the_commit_leaves_the_previous_version(
    database: Database, database_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["first", "second"])])

    def crash(connection: psycopg.Connection[tuple[object, ...]], *_args: object) -> None:
        connection.close()
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(publish, "add_totals", crash)
        with opened(database_url) as crashing, pytest.raises(SystemExit):
            crashing.publish([version(["third"], 2)])
    assert find(index, "first second third") == ["first", "second"]
    _assert_consistent(rows, ["first", "second"])
    assert index.publish([version(["third"], 2)]) == [PublishOutcome.PUBLISHED]
    assert find(index, "first second third") == ["third"]


@pytest.mark.shows("S3")
def test_rows_that_the_index_has_under_a_wrong_corpus_are_not_found_there(
    database: Database, rows: Rows
) -> None:
    """As a defect of the lists would leave them: the document's own corpus decides too."""
    index = PgVectorIndex(database)
    theirs = target(caller="another-caller")
    index.publish([version(["our public notes"]), version(["their secret notes"], to=theirs)])
    ours = rows.execute("SELECT min(id) FROM corpora WHERE corpus_key = %s", (target().corpus_key,))
    (corpus,) = ours.fetchone() or (None,)
    for table in ("postings", "vectors"):
        rows.execute(
            f"INSERT INTO {table} SELECT (jsonb_populate_record(t, jsonb_build_object('corpus', %s))).* "
            f"FROM {table} AS t WHERE corpus <> %s ON CONFLICT DO NOTHING".encode(),
            (corpus, corpus),
        )
    assert find(index, "notes") == ["our public notes"]
    assert find(index, None, vector=vector_of("their secret notes")) == ["our public notes"]


@pytest.mark.fault("F73")
def test_writers_of_one_document_never_mix_their_chunks(database_url: str, rows: Rows) -> None:
    stop = threading.Event()
    mixed: list[set[str]] = []

    def write(writer: int) -> None:
        with opened(database_url) as index:
            for number in range(15):
                generation = 1 + 4 * number + writer
                index.publish([version([f"gen{generation} part{at} shared" for at in range(5)], generation)])

    def read() -> None:
        with opened(database_url) as index:
            while not stop.is_set():
                seen = {text.split()[0] for text in find(index, "shared", top_k=100)}
                if len(seen) > 1:
                    mixed.append(seen)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
    finally:
        stop.set()
        reader.join()
    assert mixed == []
    _assert_consistent(rows, [f"gen60 part{at} shared" for at in range(5)])


def test_writers_of_one_corpus_do_not_stop_each_other(database_url: str, rows: Rows) -> None:
    urls = [f"https://a.example/{number}" for number in range(12)]
    texts_of = {url: [f"common {url} {at}" for at in range(3)] for url in urls}

    def write(writer: int) -> None:
        rng = random.Random(writer)
        with opened(database_url) as index:
            for number in range(10):
                generation = 1 + 4 * number + writer
                batch = [version(texts_of[url], generation, to=target(url)) for url in urls]
                rng.shuffle(batch)
                index.publish(batch)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    _assert_consistent(rows, [text for texts in texts_of.values() for text in texts])
    deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
    assert rows.execute(deadlocks).fetchone() == (0,)


def test_new_corpora_and_spaces_are_created_once_by_many(database_url: str, rows: Rows) -> None:
    barrier = threading.Barrier(4)

    def write(writer: int) -> None:
        with opened(database_url) as index:
            barrier.wait()
            index.publish([version([f"text{writer}"], to=target(f"https://a.example/{writer}"))])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert (_count(rows, "corpora"), _count(rows, "spaces"), _count(rows, "documents")) == (1, 1, 4)


def test_an_unavailable_database_is_a_transient_error() -> None:
    index = PgVectorIndex(Database("postgresql://nobody@127.0.0.1:9/nothing"))
    for call in (
        lambda: index.publish([version(["alpha"])]),
        lambda: index.stored(SPACE, ["0" * 64]),
        lambda: index.corpus_exists("0" * 32),
        lambda: find(index, "alpha"),
    ):
        with pytest.raises(TransientError) as raised:
            call()
        assert raised.value.code == ErrorCode.SEARCH_UNAVAILABLE


@pytest.mark.fault("F33")
def test_a_lost_connection_is_replaced(database: Database, rows: Rows) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["alpha"])])
    rows.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert find(index, "alpha") == ["alpha"]


def test_a_deleted_corpus_is_created_again(database: Database, rows: Rows) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["alpha"])])
    rows.execute("DELETE FROM corpora")
    with pytest.raises(IndexmillError) as raised:
        index.publish([version(["beta"], 2)])
    assert raised.value.retryable
    assert index.publish([version(["beta"], 2)]) == [PublishOutcome.PUBLISHED]
    assert find(index, "beta") == ["beta"]


def test_a_large_corpus_is_searched_through_an_index(
    database: Database, database_url: str, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "EXACT_LIMIT", 1_500)
    index = PgVectorIndex(database)
    for at in range(25):
        texts = [f"text {at} {number}" for number in range(100)]
        index.publish([version(texts, to=target(f"https://a.example/{at}"))])
    rows.execute("UPDATE corpus_totals SET chunks = 4 * chunks")
    assert build_due(database_url) == [1]
    for wanted in ("text 3 14", "text 15 92", "text 24 99"):
        assert wanted in find(index, None, vector=vector_of(wanted), top_k=5)
    database.connection().execute("SELECT pg_stat_force_next_flush()")
    used = "SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname LIKE 'vectors_space%'"
    assert rows.execute(used).fetchone() == (3,)


def test_the_catalogue_keeps_the_digest_of_the_published_content(database: Database, rows: Rows) -> None:
    index = PgVectorIndex(database)
    index.publish([version(["alpha"])])
    (found,) = rows.execute("SELECT content_sha256, chunk_count FROM documents").fetchall()
    assert found == ("sha", 1)


@pytest.mark.shows("X18")
def test_a_stale_document_is_found_with_its_mark_until_it_is_published_again(
    database: Database, rows: Rows
) -> None:
    index, made = PgVectorIndex(database), version(["alpha"])
    index.publish([made])
    assert [hit.stale for hit, _ in results(index, "alpha")] == [False]
    rows.execute("UPDATE documents SET stale_since = now()")
    assert [hit.stale for hit, _ in results(index, "alpha")] == [True]
    index.publish([version(["alpha"], made.generation + 1)])
    assert [hit.stale for hit, _ in results(index, "alpha")] == [False]
