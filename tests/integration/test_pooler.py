"""The chain in place of RDS Proxy refuses, reports and shares; the product's statements pin nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.platform.postgres.database import Connection, Database
from tests.support.jobs import applied, new_job, scraped, submitted
from tests.support.pooler import Chain
from tests.support.refusing_proxy import OPTIONS_REFUSED

pytestmark = [pytest.mark.integration, pytest.mark.direct]


@contextmanager
def newly_reported(chain: Chain) -> Iterator[list[tuple[str, str]]]:
    """Yield a list that has, afterwards, why each statement of the block was reported, and its text."""
    before, found = len(chain.reported()), list[tuple[str, str]]()
    yield found
    found += [(each["why"], each["statement"]) for each in chain.reported()[before:]]


@pytest.fixture
def client(postgres_chain: Chain, database_url: str) -> Iterator[Connection]:
    with psycopg.connect(
        postgres_chain.url(database_url), autocommit=True, prepare_threshold=None
    ) as connection:
        yield connection


def test_startup_options_are_refused(postgres_chain: Chain, database_url: str) -> None:
    options = "-c statement_timeout=4000"
    with newly_reported(postgres_chain) as found, pytest.raises(psycopg.OperationalError) as refused:
        psycopg.connect(postgres_chain.url(database_url), options=options)
    assert OPTIONS_REFUSED in str(refused.value)
    assert found == [("startup options are refused", options)]


def test_unknown_startup_parameters_are_refused(postgres_chain: Chain, database_url: str) -> None:
    """PgBouncer does that, unless its settings name them."""
    with pytest.raises(psycopg.OperationalError, match="unsupported startup parameter"):
        psycopg.connect(postgres_chain.url(database_url), replication="database")


def test_a_cancel_request_is_refused(postgres_chain: Chain, client: Connection) -> None:
    with newly_reported(postgres_chain) as found:
        client.cancel()
    assert found == [("a CancelRequest is refused", "")]


def test_statements_are_reported_by_either_protocol(postgres_chain: Chain, client: Connection) -> None:
    with newly_reported(postgres_chain) as found:
        client.execute("SET statement_timeout = 5000")
        client.execute("SELECT set_config('lock_timeout', %s, false)", ("7s",))
        client.prepare_threshold = 5
        client.execute("SELECT 1 WHERE 1 = %s", (1,), prepare=True)
    assert found == [
        ("a parameter is set", "SET statement_timeout = 5000"),
        ("a parameter is set", "SELECT set_config('lock_timeout', $1, false)"),
        ("a prepared statement", "SELECT 1 WHERE 1 = $1"),
    ]


def test_a_long_statement_is_reported_and_a_long_value_is_not(
    postgres_chain: Chain, client: Connection
) -> None:
    long = "x" * 20_000
    with newly_reported(postgres_chain) as found:
        client.execute("SELECT length(%s)", (long,))
        client.execute(f"SELECT length('{long}')".encode())
    assert [why for why, _ in found] == ["a text of more than 16384 bytes"]


def test_more_clients_than_server_connections_work_at_once(postgres_chain: Chain, database_url: str) -> None:
    with ExitStack() as opened:
        clients = [
            opened.enter_context(psycopg.connect(postgres_chain.url(database_url), autocommit=True))
            for _ in range(20)
        ]
        backends = {each.execute("SELECT pg_backend_pid()").fetchone() for each in clients * 2}
    assert 1 <= len(backends) <= 4


def test_what_one_client_sets_others_see(postgres_chain: Chain, database_url: str) -> None:
    """This is why nothing may be set: in transaction mode a session is not the client's own."""
    with ExitStack() as opened:
        one, other = (
            opened.enter_context(psycopg.connect(postgres_chain.url(database_url), autocommit=True))
            for _ in range(2)
        )
        one.execute("SET lock_timeout = '4711ms'")
        assert other.execute("SHOW lock_timeout").fetchone() == ("4711ms",)


def test_a_job_pins_nothing(postgres_chain: Chain, database_url: str) -> None:
    database = Database(postgres_chain.url(database_url))
    jobs, sweep, job = JobStore(database), SweepStore(database), new_job()
    with newly_reported(postgres_chain) as found:
        submitted(jobs, job)
        jobs.mark_sent([job.first.id])
        applied(jobs, scraped(job.job_id))
        jobs.claim(1)
        sweep.find_stale("scraping", 10, sweep.now(), overtaken=False)
        database.close()
    assert found == []
