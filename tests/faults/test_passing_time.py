"""Time passes for the sweeper, but leases of running processes do not expire."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from local.faults.cloud import Cloud
from tests.support.jobs import new_job, submitted

pytestmark = pytest.mark.integration

LEASED = "SELECT claimed_until > now() FROM outbox"
AGED = "UPDATE outbox SET claimed_until = claimed_until - interval '3 seconds'"


@pytest.fixture
def rows(database_url: str) -> Iterator[psycopg.Connection[tuple[bool]]]:
    """Yield a connection to a database with a message whose lease was just taken."""
    database = Database(database_url)
    submitted(JobStore(database), new_job())
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield connection
    database.close()


def test_a_lease_outlives_a_shorter_time(rows: psycopg.Connection[tuple[bool]], database_url: str) -> None:
    cloud = Cloud({"database_url": database_url})
    cloud.pass_time(3.0)
    assert rows.execute(LEASED).fetchall() == [(True,)]
    rows.execute(AGED)
    cloud.pass_time(3.0)
    assert rows.execute(LEASED).fetchall() == [(False,)]


def test_no_lease_outlives_the_default_time(rows: psycopg.Connection[tuple[bool]], database_url: str) -> None:
    Cloud({"database_url": database_url}).pass_time()
    assert rows.execute(LEASED).fetchall() == [(False,)]
