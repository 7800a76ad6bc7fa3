"""The previous release beside this one on the new schema: whose message waits for admission is known to both.

Its statements are those of 0.1.0, which knew that as claimed_until = 'infinity'.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest

from indexmill.orchestrator.adapters.postgres.jobs import PostgresJobs
from indexmill.orchestrator.admission.admit import admit_all
from indexmill.platform.postgres.database import Connection, Database
from local.backends.postgres import create_database, drop_database
from sql.migrate import migrate
from tests.support.jobs import new_job, submitted
from tests.support.repository import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.fault("F70")]

SUBMIT: Final = """
WITH job AS (
    INSERT INTO jobs (id, status, caller_id, url, document_id) VALUES ('old', 'pending', 'somebody', 'u', 'd')
)
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, claimed_until)
VALUES ('m-old', 'old', 'somebody', 1, 'scraping', 'queue', '{}', 'infinity')
"""
START: Final = """
WITH job AS (
    UPDATE jobs SET status = coalesce(resume_stage, 'scraping'), admitted_at = now(), updated_at = now()
    WHERE id = %s RETURNING id, status, attempt
)
UPDATE outbox SET claimed_until = now() + interval '30 seconds'
FROM job WHERE outbox.job_id = job.id AND outbox.attempt = job.attempt AND outbox.stage = job.status
    AND outbox.claimed_until = 'infinity'
RETURNING outbox.id
"""
CLAIM: Final = """
UPDATE outbox SET claimed_until = now() + interval '30 seconds'
WHERE id IN (
    SELECT id FROM outbox WHERE sent_at IS NULL AND parked_at IS NULL AND claimed_until <= now()
    ORDER BY claimed_until LIMIT 10 FOR UPDATE SKIP LOCKED
)
RETURNING id
"""
PAUSE: Final = "INSERT INTO pauses (stage, reason, paused_by) VALUES ('scraping', 'r', 'o')"
LEASES_END: Final = "UPDATE outbox SET claimed_until = now() WHERE claimed_until < 'infinity'"
BEFORE: Final = "0011_ages.sql"


@pytest.fixture
def connection(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as opened:
        yield opened


@pytest.fixture
def store(database_url: str) -> Iterator[PostgresJobs]:
    database = Database(database_url)
    yield PostgresJobs(database)
    database.close()


def test_a_message_of_the_previous_release_waits_and_is_admitted_by_this_one(
    connection: Connection, store: PostgresJobs
) -> None:
    connection.execute(SUBMIT)
    assert store.claim(10) == []
    assert [row.id for row in admit_all(store)] == ["m-old"]
    connection.execute(LEASES_END)
    assert [row.id for row in store.claim(10)] == ["m-old"]


def test_a_message_of_this_release_waits_and_is_admitted_by_the_previous_one(
    connection: Connection, store: PostgresJobs
) -> None:
    connection.execute(PAUSE)
    job = new_job()
    submitted(store, job)
    connection.execute(LEASES_END)
    assert connection.execute(CLAIM).fetchall() == []
    assert store.claim(10) == []
    assert connection.execute(START, (job.job_id,)).fetchall() == [(job.first.id,)]
    connection.execute(LEASES_END)
    assert [row.id for row in store.claim(10)] == [job.first.id]


def test_rows_that_are_there_are_taken_over(postgres_server: str, tmp_path: Path) -> None:
    older = tmp_path / "sql"
    older.mkdir()
    for file in sorted((ROOT / "sql").glob("*.sql")):
        if file.name <= BEFORE:
            shutil.copy(file, older)
    url = create_database(postgres_server, "previous_release")
    try:
        migrate(url, older)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(SUBMIT)
            connection.execute(
                "INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload)"
                " VALUES ('m-sent', 'old', 'somebody', 1, 'embedding', 'queue', '{}')"
            )
            migrate(url)
            found = connection.execute("SELECT id, awaiting_admission FROM outbox ORDER BY id").fetchall()
        assert found == [("m-old", True), ("m-sent", False)]
    finally:
        drop_database(postgres_server, "previous_release")
