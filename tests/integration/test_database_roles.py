"""Only the Orchestrator's login writes the state of jobs; Embedding's reaches the index and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.errors import InsufficientPrivilege

from indexmill.embedding.adapters.pgvector.index import PgVectorIndex, PostgresGenerations
from indexmill.embedding.adapters.pgvector.search import EXACT_LIMIT
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import Retention, SweepStore
from indexmill.platform.postgres.database import Connection, Database
from local.backends.postgres import create_database, drop_database
from local.backends.postgres_logins import login_url, login_urls, secret_parameters
from sql.build_index import build_due
from sql.migrate import logins_of, migrate
from tests.support.index_builders import find, vector_of, version
from tests.support.jobs import applied, new_job, scraped, submitted

pytestmark = pytest.mark.integration

INDEX = ("corpora", "spaces", "documents", "chunks", "memberships", "vectors", "postings", "corpus_totals")

READ = ("lost_generations", "corpus_names", "corpus_grants", "tombstones")
"""Read by publishes and by what names a corpus; no one else than the owner writes them for Embedding."""

_COLUMNS = {
    "lost_generations": "upto",
    "corpus_names": "corpus",
    "corpus_grants": "corpus",
    "tombstones": "generation",
}

PURGED = (
    *("outbox", "inbox", "idempotency_keys", "dead_letters", "earlier_starts", "fences"),
    *("crawls", "page_links", "tombstones"),
)
OLD_ROWS = (
    "INSERT INTO jobs (id, status, caller_id, url, ended_at)"
    " VALUES ('old', 'done', 'c', 'u', now() - interval '30 days')",
    "INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, created_at, sent_at)"
    " VALUES ('old', 'old', 'c', 1, 'scraping', 'queue', '{}', now() - interval '30 days', now())",
    "INSERT INTO inbox VALUES ('old', now() - interval '30 days')",
    "INSERT INTO idempotency_keys VALUES ('c', 'old', '', '{}', now() - interval '30 days')",
    "INSERT INTO dead_letters (queue, body, receive_count, reason, cause, received_at)"
    " VALUES ('q', '{}', 1, 'r', 'foreign', now() - interval '30 days')",
    "INSERT INTO earlier_starts VALUES ('old', 1, 'c', now() - interval '30 days')",
    "INSERT INTO documents (document_id, corpus_id, fenced_at)"
    " SELECT 'old', id, now() - interval '30 days' FROM corpora",
    "INSERT INTO crawls (id, caller_id, kind, plan, max_pages, hosts, created_at)"
    " VALUES ('old', 'c', 'crawl', '{}', 1, '{}', now() - interval '30 days')",
    "INSERT INTO crawl_pages VALUES ('old', '', 'old', 0)",
    "INSERT INTO tombstones VALUES ('old', 1, 'old', true, now() - interval '200 days')",
    "INSERT INTO page_links VALUES ('old', '', '', now() - interval '200 days')",
)


def url_of(owner_url: str, parameter: str) -> str:
    return login_url(owner_url, secret_parameters("eu-west-1", "000000000000")[parameter])


@pytest.fixture
def logins(database_url: str) -> tuple[str, str]:
    """Return the URLs of the Orchestrator's and of Embedding's login."""
    for _ in range(2):
        migrate(database_url, logins=logins_of(login_urls(database_url), 4.0))
    parameters = ("OrchestratorDatabaseUrlSecretArn", "EmbeddingDatabaseUrlSecretArn")
    first, second = (url_of(database_url, each) for each in parameters)
    return first, second


@pytest.fixture
def orchestrator(logins: tuple[str, str]) -> Iterator[Database]:
    database = Database(logins[0])
    yield database
    database.close()


@pytest.fixture
def embedding(logins: tuple[str, str]) -> Iterator[Connection]:
    with psycopg.connect(logins[1], autocommit=True) as connection:
        yield connection


def tables(owner_url: str) -> list[str]:
    with psycopg.connect(owner_url) as connection:
        found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
    return sorted(row[0] for row in found)


def test_embedding_reaches_no_table_of_the_orchestrator(database_url: str, embedding: Connection) -> None:
    foreign = set(tables(database_url)) - {*INDEX, *READ, "erasures"}
    assert {"jobs", "job_history", "outbox", "inbox", "dead_letters", "pauses"} <= foreign
    for table in foreign:
        for statement in (
            f"SELECT FROM {table}",
            f"INSERT INTO {table} DEFAULT VALUES",
            f"DELETE FROM {table}",
            f"TRUNCATE {table}",
            f"ALTER TABLE {table} ADD COLUMN more TEXT",
        ):
            with pytest.raises(InsufficientPrivilege):
                embedding.execute(statement.encode())


def test_embedding_notes_what_it_erased_and_changes_no_note(embedding: Connection) -> None:
    embedding.execute("INSERT INTO erasures VALUES ('j', 'd', 1, 1, 1, 1)")
    for statement in ("UPDATE erasures SET chunks = 2", "DELETE FROM erasures", "TRUNCATE erasures"):
        with pytest.raises(InsufficientPrivilege):
            embedding.execute(statement.encode())


@pytest.mark.parametrize("table", READ)
def test_embedding_reads_what_only_the_owner_changes(embedding: Connection, table: str) -> None:
    assert embedding.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,)
    for statement in (
        f"INSERT INTO {table} DEFAULT VALUES",
        f"UPDATE {table} SET {_COLUMNS[table]} = NULL",
        f"DELETE FROM {table}",
    ):
        with pytest.raises(InsufficientPrivilege):
            embedding.execute(statement.encode())


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE jobs SET status = 'done'",
        "UPDATE jobs SET attempt = attempt + 1",
        "INSERT INTO jobs (id, status, caller_id, url) VALUES ('x', 'done', 'c', 'u')",
    ],
)
def test_embedding_cannot_write_the_state_of_a_job(embedding: Connection, change: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        embedding.execute(change.encode())


def test_embedding_cannot_drop_or_make_tables(embedding: Connection) -> None:
    for statement in ("DROP TABLE vectors", "CREATE TABLE mine (id INT)", "CREATE INDEX ON vectors (chunk)"):
        with pytest.raises(InsufficientPrivilege):
            embedding.execute(statement.encode())


def test_embedding_publishes_and_searches(
    logins: tuple[str, str], database_url: str, orchestrator: Database, embedding: Connection
) -> None:
    database = Database(logins[1])
    index = PgVectorIndex(database)
    published = version(["one text", "another"], generation=PostgresGenerations(database).next())
    index.publish([published])
    embedding.execute("UPDATE corpus_totals SET chunks = %s", (EXACT_LIMIT,))
    assert find(index, None, vector=vector_of("one text"), top_k=1) == ["one text"]
    assert SweepStore(orchestrator).index_builds_due() == 1
    assert build_due(database_url) == [1]
    assert find(index, None, vector=vector_of("one text"), top_k=1) == ["one text"]
    database.close()


def test_the_release_before_builds_no_index(embedding: Connection) -> None:
    embedding.execute("INSERT INTO spaces (model, dimension) VALUES ('tiny', 4)")
    embedding.execute("SELECT build_vector_index(1, 16, 2000)")
    assert embedding.execute("SELECT to_regclass('vectors_space_1')").fetchone() == (None,)
    assert embedding.execute("SELECT indexed_rows FROM spaces").fetchone() == (0,)


def test_the_release_before_draws_numbers_from_the_sequences_itself(
    orchestrator: Database, embedding: Connection
) -> None:
    for connection in (orchestrator.connection(), embedding):
        (drawn,) = connection.execute("SELECT nextval('generation_seq')").fetchone() or (0,)
        assert connection.execute("SELECT next_generation()").fetchone() == (drawn + 1,)
    (block,) = embedding.execute("SELECT nextval('chunk_blocks')").fetchone() or (0,)
    assert embedding.execute("SELECT next_chunk_block()").fetchone() == (block + 1,)


def test_the_orchestrator_does_its_work(orchestrator: Database) -> None:
    store, view = JobStore(orchestrator), SweepStore(orchestrator)
    job = new_job()
    submitted(store, job)
    applied(store, scraped(job.job_id))
    store.mark_sent([job.first.id])
    assert view.count_unaccounted(view.now()) == {}
    for statement in OLD_ROWS:
        orchestrator.connection().execute(statement.encode())
    assert view.purge(Retention(), 10) == dict.fromkeys(PURGED, 1)
    view.incidents("paused", {"scraping": {}})


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE job_history SET cause = 'nothing'",
        "DELETE FROM job_history",
        "TRUNCATE job_history",
        "ALTER TABLE job_history DISABLE TRIGGER append_only",
        "UPDATE audit_events SET caller_id = 'nobody'",
        "DELETE FROM audit_events",
        "TRUNCATE audit_events",
        "ALTER TABLE audit_events DISABLE TRIGGER append_only",
        "DELETE FROM vectors",
        "INSERT INTO schema_migrations (name, sha256) VALUES ('x', 'y')",
    ],
)
def test_the_orchestrator_cannot_change_history_or_index(orchestrator: Database, change: str) -> None:
    with pytest.raises(InsufficientPrivilege):
        orchestrator.connection().execute(change.encode())


def test_every_table_is_somebodys(database_url: str) -> None:
    """A migration that forgets to say who may use its table is seen here."""
    query = """
        SELECT relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'schema_migrations'
            AND NOT has_table_privilege('indexmill_orchestrator', oid, 'INSERT')
            AND NOT has_table_privilege('indexmill_embedding', oid, 'INSERT')
    """
    with psycopg.connect(database_url) as connection:
        assert connection.execute(query).fetchall() == []


def test_databases_of_one_server_may_migrate_at_once(postgres_server: str) -> None:
    names = [f"at_once_{number}" for number in range(3)]
    urls = [create_database(postgres_server, name) for name in names]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        held = connection.execute(
            "SELECT rolname FROM pg_roles WHERE rolname LIKE 'indexmill_%' AND NOT rolcanlogin"
        ).fetchall()
    assert len(held) == 2
    applied: list[int] = []
    threads = [threading.Thread(target=lambda url=url: applied.append(len(migrate(url)))) for url in urls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for name in names:
        drop_database(postgres_server, name)
    assert len(applied) == 3
    assert len(set(applied)) == 1


def test_a_login_is_found_by_its_secret_only() -> None:
    owner = "postgresql://indexmill@127.0.0.1:5/postgres"
    assert urlsplit(url_of(owner, "EmbeddingDatabaseUrlSecretArn")).username == "indexmill_embedding_app"
    assert login_url(owner, "arn:aws:secretsmanager:eu-west-1:0:secret:another") == owner
