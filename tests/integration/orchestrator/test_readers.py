"""A replica that is behind decides nothing: whatever guards a change can only be asked of the writer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.adapters.postgres_jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres_verbs import PostgresVerbs
from indexmill.orchestrator.results import Decider
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from local.backends.postgres import create_database, drop_database
from tests.support.jobs import CALLER, failed, new_job, scraped

pytestmark = pytest.mark.integration

AT = datetime(2026, 3, 14, 12, tzinfo=UTC)
Guarded = Callable[[Database, str], Any]
GUARDED: dict[str, Guarded] = {
    "accepting a job": lambda database, _: PostgresJobs(database).submit([new_job("https://example.com/b")]),
    "applying a report": lambda database, job_id: PostgresJobs(database).apply(
        [scraped(job_id)], Decider(FrozenClock())
    ),
    "taking unsent messages": lambda database, _: PostgresJobs(database).claim(1),
    "canceling": lambda database, job_id: PostgresVerbs(database).cancel(CALLER.caller_id, job_id, "", AT),
    "retrying": lambda database, job_id: PostgresVerbs(database).retry(
        CALLER.caller_id, job_id, str(uuid.uuid4())
    ),
}


@pytest.fixture
def writer(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    yield database
    database.close()


@pytest.fixture
def replicate(postgres_server: str, database_url: str, writer: Database) -> Iterator[Callable[[], Database]]:
    """Make a replica that stays as the database is now; its sessions read, and cannot lock or write."""
    name = f"replica_of_{urlsplit(database_url).path[1:]}"

    def replicate() -> Database:
        writer.close()  # a database is copied while nobody is connected to it
        url = create_database(postgres_server, name, template=urlsplit(database_url).path[1:])
        replicas.append(Database(url, options="-c default_transaction_read_only=on"))
        return replicas[-1]

    replicas: list[Database] = []
    yield replicate
    for each in replicas:
        each.close()
    drop_database(postgres_server, name)


@pytest.mark.fault("F34")
@pytest.mark.parametrize("missing", ["nothing", "its failure", "the job"])
@pytest.mark.parametrize("guarded", GUARDED.values(), ids=GUARDED)
def test_no_change_is_decided_by_a_replica(
    writer: Database, replicate: Callable[[], Database], guarded: Guarded, missing: str
) -> None:
    job = new_job()
    jobs = PostgresJobs(writer)
    replica = replicate() if missing == "the job" else None
    jobs.submit([job])
    replica = replicate() if missing == "its failure" else replica
    jobs.apply([failed(job.job_id)], Decider(FrozenClock()))
    replica = replica or replicate()
    before, stale = (PostgresJobs(each).get(CALLER.caller_id, job.job_id) for each in (writer, replica))
    assert (stale and stale.status) == {"nothing": "failed", "its failure": "scraping"}.get(missing)
    with pytest.raises(TransientError) as refused:
        guarded(replica, job.job_id)
    assert refused.value.code == "database_unavailable"
    assert jobs.get(CALLER.caller_id, job.job_id) == before
    assert PostgresJobs(replica).get(CALLER.caller_id, job.job_id) == stale, "it may be read there"
