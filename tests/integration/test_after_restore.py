"""Preparation of a restored database: sequences, lost generations, messages of jobs in flight."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import PublishOutcome
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import KeptEvent, SweepStore
from indexmill.platform.postgres.database import Database
from sql import migrate
from tests.support.index_builders import target, version
from tests.support.orchestrator import OrchestratorHarness

pytestmark = [pytest.mark.integration, pytest.mark.fault("F79")]

GAP = 1_000_000
SENT = "SELECT count(*) FROM outbox WHERE sent_at IS NOT NULL"


@pytest.fixture
def rows(database_url: str) -> Iterator[psycopg.Connection[tuple[int, ...]]]:
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection


def test_what_was_issued_after_the_restore_is_refused_and_new_generations_are_not(
    database_url: str, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    (issued,) = rows.execute("SELECT nextval('generation_seq') + 1000").fetchone() or (0,)
    rows.execute("SELECT setval('generation_seq', %s)", (issued,))
    continues = migrate.after_restore(database_url)
    assert continues["generation_seq"] == issued + GAP
    (fresh,) = rows.execute("SELECT next_generation()").fetchone() or (0,)
    assert fresh == issued + GAP + 1
    with closing(Database(database_url)) as database:
        index = PgVectorIndex(database)
        outcomes = [
            index.publish([version([f"text of {name}"], generation, to=target(name))])
            for name, generation in (
                ("a", issued + 7),
                ("b", issued + GAP),
                ("c", fresh),
                ("d", issued - 1000),
            )
        ]
    assert [one for (one,) in outcomes] == [
        PublishOutcome.FENCED,
        PublishOutcome.FENCED,
        PublishOutcome.PUBLISHED,
        PublishOutcome.PUBLISHED,
    ]
    assert rows.execute("SELECT count(*) FROM documents").fetchone() == (2,)


def test_a_second_run_loses_nothing_that_was_issued_since(
    database_url: str, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    first = migrate.after_restore(database_url)
    (fresh,) = rows.execute("SELECT next_generation()").fetchone() or (0,)
    assert fresh == first["generation_seq"] + 1
    second = migrate.after_restore(database_url)
    assert second == {**first, "generation_seq": fresh}
    lost = "SELECT count(*) FROM lost_generations WHERE %s > after AND %s <= upto"
    assert rows.execute(lost, (fresh, fresh)).fetchone() == (0,)
    assert rows.execute("SELECT count(*) FROM lost_generations").fetchone() == (1,)


def test_a_server_that_was_restored_again_is_made_safe_again(
    database_url: str, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    first = migrate.after_restore(database_url)
    # It was started after the run whose row it restored.
    rows.execute("UPDATE lost_generations SET restored_at = pg_postmaster_start_time() - interval '1 s'")
    second = migrate.after_restore(database_url)
    assert {second[name] - number for name, number in first.items()} == {GAP, 335_544}


def test_only_jobs_in_flight_have_their_messages_sent_again(
    database_url: str, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    with closing(Database(database_url)) as database:
        pipeline = OrchestratorHarness(JobStore(database))
        ended, in_flight = pipeline.submit(), pipeline.submit()
        rows.execute("UPDATE jobs SET status = 'done', ended_at = now() WHERE id = %s", (ended,))
        rows.execute("UPDATE outbox SET sent_at = now()")
        migrate.after_restore(database_url)
    unsent = rows.execute("SELECT job_id FROM outbox WHERE sent_at IS NULL").fetchall()
    assert unsent == [(in_flight,)]
    generation = "SELECT generation FROM jobs WHERE id = %s"
    (known,) = rows.execute(generation, (in_flight,)).fetchone() or (0,)
    lost = "SELECT count(*) FROM lost_generations WHERE %s > after AND %s <= upto"
    assert rows.execute(lost, (known, known)).fetchone() == (0,)


def test_events_after_a_load_from_a_dump_are_logged(
    database_url: str, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    """The other server had counted further."""
    rows.execute("UPDATE audit_logged SET xact = '9000000000', seq = 7")
    add = "INSERT INTO audit_events (event, caller_id, fields) VALUES ('job_submitted', 'somebody', '{}')"
    logged: list[KeptEvent] = []
    with closing(Database(database_url)) as database:
        rows.execute(add.encode())
        assert SweepStore(database).log_audit(logged.append, 10) == 0
        migrate.after_restore(database_url)
        rows.execute(add.encode())
        assert SweepStore(database).log_audit(logged.append, 10) == 1


def test_the_migrator_prepares_the_host_that_it_is_given(
    database_url: str, monkeypatch: pytest.MonkeyPatch, rows: psycopg.Connection[tuple[int, ...]]
) -> None:
    """The owner's secret is that of the database which is replaced: the password was restored too."""
    elsewhere = psycopg.conninfo.make_conninfo(database_url, host="127.0.0.2")
    monkeypatch.setenv("DATABASE_URL", elsewhere)
    answer = migrate.handler({"after_restore": "127.0.0.1"}, None)
    assert answer["continues_after"]["generation_seq"] >= GAP
    assert rows.execute("SELECT count(*) > 0 FROM lost_generations").fetchone() == (True,)
