"""The published schema of `jobs`: indexes, checks, and columns that must not exist."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.errors import CheckViolation

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Connection, Database
from tests.support.job_stores import retried
from tests.support.jobs import applied, failed, new_job, submitted


@pytest.fixture
def store(database_url: str) -> Iterator[JobStore]:
    database = Database(database_url)
    yield JobStore(database)
    database.close()


@pytest.fixture
def rows(database_url: str) -> Iterator[Connection]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        pytest.param("jobs_caller_status", "(caller_id, status)", marks=pytest.mark.shows("R032")),
        pytest.param("jobs_status_updated", "(status, updated_at)", marks=pytest.mark.shows("R033")),
        pytest.param(
            "jobs_failed_stage",
            "(failed_stage) WHERE (status = 'failed'::text)",
            marks=pytest.mark.shows("R034"),
        ),
    ],
)
def test_the_published_indexes_are_there(rows: Connection, name: str, definition: str) -> None:
    found = rows.execute("SELECT indexdef FROM pg_indexes WHERE indexname = %s", (name,)).fetchone()
    assert found is not None
    assert str(found[0]).endswith(f"ON public.jobs USING btree {definition}")


@pytest.mark.shows("R035")
@pytest.mark.parametrize(
    "change",
    [
        "failed_stage = 'scraping'",
        "error = '{}'",
        "status = 'failed'",
        "status = 'failed', failed_stage = 'scraping'",
        "status = 'failed', error = '{}'",
    ],
)
def test_only_a_failed_job_has_a_failed_stage_and_an_error(
    store: JobStore, rows: Connection, change: str
) -> None:
    submitted(store, new_job())
    with pytest.raises(CheckViolation, match="jobs_failed_says_why"):
        rows.execute(f"UPDATE jobs SET {change}".encode())


@pytest.mark.shows("R035")
def test_a_retry_clears_stage_and_error(store: JobStore) -> None:
    job = new_job()
    submitted(store, job)
    applied(store, failed(job.job_id))
    again = retried(store, job.job_id).job
    assert (again.failed_stage, again.error) == (None, None)


@pytest.mark.shows("R036")
def test_no_table_has_a_tenant(rows: Connection) -> None:
    found = rows.execute(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'public' AND column_name LIKE '%tenant%'"
    )
    assert found.fetchall() == []
