"""The sweeper's statements, and those of a job's end, read few rows before Postgres has statistics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.store.rows import SQL

pytestmark = pytest.mark.integration

MANY = 5_000
TABLES = [
    *("jobs", "outbox", "inbox", "idempotency_keys", "documents", "job_dependencies"),
    *("crawls", "page_links"),
]
FILL = """
INSERT INTO jobs (id, batch_id, status, caller_id, url, created_at, updated_at, ended_at)
SELECT 'job' || n, 'job' || n, status, 'c', repeat('x', 400), since, since,
    CASE WHEN status = 'done' THEN since END
FROM (
    SELECT n, CASE WHEN n <= 10 THEN 'scraping' WHEN n BETWEEN 4900 AND 4920 THEN 'pending' ELSE 'done' END
        AS status
    FROM generate_series(1, %(many)s) AS n
) AS job, (SELECT now() - interval '1 day' AS since) AS own;
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, created_at, sent_at)
SELECT stage || id, id, 'c', 1, stage, 'queue', repeat('x', 200), created_at, created_at
FROM jobs, unnest(ARRAY['scraping', 'chunking', 'embedding']) AS stage
WHERE status = 'done' OR stage = status;
INSERT INTO inbox (message_id, received_at) SELECT id, created_at FROM jobs;
INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer, created_at)
SELECT 'c', id, '', '{}', created_at FROM jobs;
INSERT INTO corpora (corpus_key, caller_id, name) VALUES ('k', 'c', 'n');
INSERT INTO documents (document_id, corpus_id, published)
SELECT jobs.id, corpora.id, 1 FROM jobs, corpora;
INSERT INTO job_dependencies (job_id, depends_on)
SELECT 'job' || n + 1, 'job' || n FROM generate_series(100, %(many)s - 1, 2) AS n;
INSERT INTO crawls (id, caller_id, kind, plan, max_pages, hosts, created_at)
SELECT id, 'c', 'crawl', '{}', 1, '{}', created_at - CASE id WHEN 'job1' THEN interval '9 days' ELSE '0' END
FROM jobs;
INSERT INTO page_links SELECT id, '', '', created_at FROM jobs;
"""
READ = """
SELECT relname, coalesce(idx_tup_fetch, 0) + seq_tup_read
FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)
"""
STATEMENTS: dict[str, dict[str, Any]] = {
    "has_old_rows": dict.fromkeys(
        ("payloads", "inbox", "keys", "letters", "starts", "links", "tombstones"), timedelta(days=7)
    ),
    "purge_outbox": {"payloads": timedelta(days=7), "limit": 100},
    "purge_crawls": {"payloads": timedelta(days=7), "limit": 100},
    "purge_page_links": {"links": timedelta(days=7), "limit": 100},
    "count_parked": {},
    "lock_dependents": {"job_ids": [f"job{number}" for number in range(4_900, 4_920)]},
}


@pytest.fixture(params=["fresh", "analyzed"])
def session(request: pytest.FixtureRequest, database_url: str) -> Iterator[psycopg.Connection]:
    """Yield a session on 5,000 jobs of yesterday, with statistics or without any."""
    with psycopg.connect(database_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as own:
        for table in TABLES:
            own.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)".encode())
        own.execute(FILL, {"many": MANY})
        if request.param == "analyzed":
            own.execute("ANALYZE")
    with psycopg.connect(database_url, prepare_threshold=None) as session:
        yield session


@pytest.mark.parametrize("name", STATEMENTS)
def test_rows_that_do_not_match_are_not_read(session: psycopg.Connection, name: str) -> None:
    assert _rows_read(session, name, STATEMENTS[name]) < 100


def test_messages_are_looked_up_by_their_jobs(session: psycopg.Connection) -> None:
    now = session.execute(SQL["now"]).fetchall()[0][0]
    values = {"stages": [stage.name for stage in STAGES], "before": now}
    assert _rows_read(session, "count_unaccounted", values) < 100


def _rows_read(session: psycopg.Connection, name: str, values: dict[str, Any]) -> int:
    before = Counter(dict(session.execute(READ, (TABLES,)).fetchall()))
    session.execute(SQL[name], values)
    after = Counter(dict(session.execute(READ, (TABLES,)).fetchall()))
    return (after - before).total()
