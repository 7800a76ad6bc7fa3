"""The clean-up's look for old rows, each minute, costs little however often rows came and went."""

from __future__ import annotations

import psycopg
import pytest

from indexmill.orchestrator.store.rows import SQL

pytestmark = pytest.mark.integration

MANY = 20_000
FILL = """
INSERT INTO jobs (id, status, caller_id, url, created_at, updated_at, ended_at)
SELECT %(name)s || n, 'done', 'c', '', since, since, since
FROM generate_series(1, %(many)s) AS n, (SELECT now() - %(age)s::interval AS since) AS own;
INSERT INTO outbox (id, job_id, caller_id, attempt, stage, kind, payload, created_at, sent_at)
SELECT id, id, 'c', 1, 'scraping', 'queue', repeat('x', 200), ended_at, ended_at
FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO inbox (message_id, received_at)
SELECT id, ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO idempotency_keys (caller_id, key, body_sha256, answer, created_at)
SELECT 'c', id, '', '{}', ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO earlier_starts (job_id, attempt, caller_id, started_at)
SELECT id, 1, 'c', ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO crawls (id, caller_id, kind, plan, max_pages, hosts, created_at)
SELECT id, 'c', 'crawl', '{}', 1, '{}', ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO tombstones (id, generation, job_id, erased, at)
SELECT id, 1, '', true, ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
INSERT INTO page_links SELECT id, '', '', ended_at FROM jobs WHERE id LIKE %(name)s || '%%';
"""
READ = """
SELECT relname, coalesce(idx_tup_fetch, 0) + seq_tup_read
FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)
"""
TABLES = ["outbox", "inbox", "idempotency_keys", "earlier_starts", "crawls", "page_links", "tombstones"]
AGES = dict.fromkeys(("payloads", "inbox", "keys", "letters", "starts", "links", "tombstones"), "7 days")


@pytest.fixture
def session(database_url: str) -> psycopg.Connection:
    """Return a session on tables whose old rows were deleted and whose room newer rows took."""
    with psycopg.connect(database_url, autocommit=True, cursor_factory=psycopg.ClientCursor) as own:
        own.execute(FILL, {"name": "old", "many": MANY, "age": "8 days"})
        own.execute("VACUUM ANALYZE")
        for table in TABLES:
            own.execute(f"DELETE FROM {table}".encode())
        # Its very last row keeps a table from being cut off where it is empty.
        own.execute(FILL, {"name": "last", "many": 1, "age": "1 day"})
        own.execute("VACUUM ANALYZE")
        own.execute(FILL, {"name": "new", "many": MANY, "age": "1 day"})
        own.execute("VACUUM ANALYZE")
    return psycopg.connect(database_url)


def test_rows_that_are_not_old_are_not_read(session: psycopg.Connection) -> None:
    with session:
        assert not any(old for _, old in session.execute(SQL["has_old_rows"], AGES).fetchall())
        read: dict[str, int] = dict(session.execute(READ, (TABLES,)).fetchall())
    assert max(read.values()) < 10, read
