"""A migration goes by while the service works: it waits briefly, and old code works on what it leaves."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from local.backends.postgres import create_database, drop_database
from sql.migrate import migrate
from tests.support.jobs import embedded, scraped
from tests.support.orchestrator import OrchestratorHarness
from tests.support.repository import ROOT
from tests.support.stack import eventually

pytestmark = [pytest.mark.integration, pytest.mark.fault("F70")]

WAIT_S = 0.3
NEXT = "9000_next.sql"
AWAITING_ADMISSION = "0012_awaiting_admission.sql"
CORPORA = "0037_corpora.sql"
EXPAND = """
ALTER TABLE jobs ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';
ALTER TABLE job_history ADD COLUMN colour TEXT;
ALTER TABLE outbox ADD COLUMN colour TEXT;
ALTER TABLE inbox ADD COLUMN colour TEXT;
CREATE TABLE colours (name TEXT PRIMARY KEY);
CREATE INDEX jobs_colour ON jobs (colour);
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return all migrations, and one more that only adds."""
    copied = tmp_path / "sql"
    shutil.copytree(ROOT / "sql", copied)
    (copied / NEXT).write_text(EXPAND)
    return copied


@pytest.fixture
def pipeline(database_url: str) -> Iterator[OrchestratorHarness]:
    database = Database(database_url)
    yield OrchestratorHarness(JobStore(database))
    database.close()


def run_a_job(p: OrchestratorHarness) -> float:
    """Take a job through all its stages; return the seconds that this took."""
    began = time.monotonic()
    job_id = p.submit()
    p.deliver(scraped(job_id))
    p.deliver(embedded(job_id))
    assert p.status(job_id) == "done"
    return time.monotonic() - began


def columns(url: str) -> int:
    with psycopg.connect(url) as connection:
        statement = "SELECT count(*) FROM information_schema.columns WHERE column_name = 'colour'"
        (count,) = connection.execute(statement).fetchone() or (-1,)
    return int(count)


def test_a_migration_that_must_wait_blocks_no_writer_for_long(
    database_url: str, folder: Path, pipeline: OrchestratorHarness
) -> None:
    run_a_job(pipeline)
    took: list[float] = []
    with ThreadPoolExecutor(1) as pool, psycopg.connect(database_url) as reader:
        reader.execute("SELECT count(*) FROM jobs")  # and its transaction stays open
        migrating: Future[list[str]] = pool.submit(migrate, database_url, folder, lock_wait_s=WAIT_S)
        began = time.monotonic()
        while time.monotonic() - began < 5 * WAIT_S:
            took.append(run_a_job(pipeline))
        assert not migrating.done()
        assert columns(database_url) == 0
        reader.rollback()
        assert migrating.result(10) == [NEXT]
    assert columns(database_url) == 4
    # Four statements that may each meet it once; without a limit they all wait until the reader is gone.
    assert max(took) < 4 * WAIT_S
    assert max(took) > WAIT_S / 2, "the migration did stand in the way"


def test_jobs_run_before_during_and_after_a_migration(
    database_url: str, folder: Path, pipeline: OrchestratorHarness
) -> None:
    run_a_job(pipeline)
    with ThreadPoolExecutor(1) as pool:
        migrating: Future[list[str]] = pool.submit(migrate, database_url, folder, lock_wait_s=WAIT_S)

        def is_migrated() -> bool:
            run_a_job(pipeline)
            return migrating.done()

        eventually(is_migrated, "the migration is through")
        assert migrating.result() == [NEXT]
    run_a_job(pipeline)
    assert migrate(database_url, folder) == []


def test_a_migration_that_fails_leaves_nothing(
    database_url: str, folder: Path, pipeline: OrchestratorHarness
) -> None:
    (folder / NEXT).write_text(EXPAND + "SELECT nonsense;")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        migrate(database_url, folder)
    assert columns(database_url) == 0
    run_a_job(pipeline)
    (folder / NEXT).write_text(EXPAND)
    assert migrate(database_url, folder) == [NEXT]


def older_schema(folder: Path, before: str) -> Path:
    """Return the migrations in front of `before`."""
    older = folder / "sql"
    older.mkdir()
    for file in (ROOT / "sql").glob("*.sql"):
        if file.name < before:
            shutil.copy(file, older)
    return older


def test_messages_that_wait_for_admission_are_taken_over(postgres_server: str, tmp_path: Path) -> None:
    """The previous release knew them by claimed_until = 'infinity'."""
    older = older_schema(tmp_path, AWAITING_ADMISSION)
    url = create_database(postgres_server, "older_schema")
    try:
        migrate(url, older)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)"
                " VALUES"
                " ('waits', 'a', 'somebody', 1, 'scraping', 'queue', '{}', 'infinity'),"
                " ('claimed', 'b', 'somebody', 1, 'scraping', 'queue', '{}', now() + interval '30 seconds')"
            )
            migrate(url)
            found = connection.execute("SELECT id, awaiting_admission FROM outbox").fetchall()
        assert dict(found) == {"waits": True, "claimed": False}
    finally:
        drop_database(postgres_server, "older_schema")


def test_corpora_that_the_release_before_may_write_to_are_counted_later(
    postgres_server: str, tmp_path: Path
) -> None:
    """Those of before, and those that are made while its functions still run."""
    older = older_schema(tmp_path, CORPORA)
    url = create_database(postgres_server, "older_corpora")
    add = "INSERT INTO corpora (corpus_key, caller_id, name) VALUES (%(name)s, 'somebody', %(name)s)"
    try:
        migrate(url, older)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(add, {"name": "before"})
            migrate(url)
            connection.execute(add, {"name": "meanwhile"})
            counted = (
                "SELECT n.name, n.documents_before, n.bytes_before FROM corpus_names AS n ORDER BY n.name"
            )
            assert connection.execute(counted).fetchall() == [
                ("before", None, None),
                ("meanwhile", None, None),
            ]
            connection.execute("UPDATE corpus_names SET since = now() - interval '61 minutes'")
            assert connection.execute("SELECT count_old_corpora(10, 10)").fetchall() == [(2,)]
            assert connection.execute(counted).fetchall() == [("before", 0, 0), ("meanwhile", 0, 0)]
    finally:
        drop_database(postgres_server, "older_corpora")
