"""The history of a job: rows are added and never changed, and each one seals those before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, LiteralString

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.rows import SQL
from indexmill.platform.postgres.database import Connection, Database
from tests.support.jobs import applied, failed, new_job, scraped, submitted

BROKEN = """
SELECT seq FROM (
    SELECT h AS entry, h.seq, lag(h.hash, 1, '') OVER (PARTITION BY h.job_id ORDER BY h.seq) AS before
    FROM job_history h
) AS chain WHERE (entry).prev_hash <> before OR (entry).hash <> job_history_hash(entry)
"""


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    database = Database(database_url)
    store = JobStore(database)
    for _ in range(2):
        job = new_job(url="https://example.com/" + "x" * 3)
        submitted(store, job)
        applied(store, scraped(job.job_id), failed(job.job_id, "chunking"))
    yield database.connection()
    database.close()


def test_every_row_seals_the_one_before(connection: Connection) -> None:
    rows = connection.execute("SELECT prev_hash, hash FROM job_history ORDER BY seq").fetchall()
    assert len(rows) == 8
    assert len({digest for _, digest in rows}) == 8
    assert connection.execute(BROKEN).fetchall() == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE job_history SET cause = 'nothing' WHERE seq = 2",
        "DELETE FROM job_history",
        "TRUNCATE job_history",
    ],
)
def test_a_row_is_never_changed(connection: Connection, change: str) -> None:
    with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
        connection.execute(change.encode())


@pytest.mark.parametrize("column", ["cause = 'nothing'", "attempt = 7", "elapsed_ms = 1", "at = now()"])
def test_a_change_behind_the_databases_back_is_seen(connection: Connection, column: str) -> None:
    connection.execute("ALTER TABLE job_history DISABLE TRIGGER append_only")
    connection.execute(f"UPDATE job_history SET {column} WHERE seq = 2".encode())
    assert [row[0] for row in connection.execute(BROKEN).fetchall()] == [2]


READ = (
    "SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0) FROM pg_stat_xact_user_tables WHERE relname = %s"
)
LOOKS = {
    "a job's first row": (
        "INSERT INTO job_history (job_id, attempt, to_status) VALUES (%s, 1, %s)",
        ("new", "pending"),
    ),
    "what happened to a job": (SQL["job_events"], {"seq": 0, "job_id": "old", "caller_id": "somebody"}),
}


@pytest.mark.parametrize("statement", LOOKS.values(), ids=LOOKS)
def test_no_statement_scans_the_history_of_all_jobs(
    database_url: str, statement: tuple[LiteralString, Any]
) -> None:
    """Also while nothing is known of the table: it was filled, or restored, a moment ago."""
    with psycopg.connect(database_url) as session:
        session.execute("ALTER TABLE job_history SET (autovacuum_enabled = off)")
        session.execute("ALTER TABLE job_history DISABLE TRIGGER chain")
        session.execute(
            "INSERT INTO jobs (id, status, caller_id, url) VALUES ('old', 'pending', 'somebody', '')"
        )
        session.execute(
            "INSERT INTO job_history (job_id, attempt, to_status)"
            " SELECT CASE number WHEN 1 THEN 'old' ELSE 'job ' || number END, 1, 'pending'"
            " FROM generate_series(1, 50000) AS number"
        )
        session.execute("ALTER TABLE job_history ENABLE TRIGGER chain")
        session.commit()
        session.execute(*statement)
        row = session.execute(READ, ("job_history",)).fetchone()
    assert row is not None
    assert row[0] < 10
