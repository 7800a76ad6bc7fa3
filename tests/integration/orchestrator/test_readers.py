"""A replica that is behind decides nothing: whatever guards a change can only be asked of the writer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from psycopg.conninfo import make_conninfo

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.postgres.database import Database
from local.backends.postgres import create_database, drop_database
from tests.support.job_stores import canceled, retried
from tests.support.jobs import CALLER, applied, failed, new_job, scraped, stored_job, submitted

# A replica is made as a copy, for which a database must have no connections: a pooler keeps some.
pytestmark = [pytest.mark.integration, pytest.mark.direct]

Guarded = Callable[[Database, str], Any]
GUARDED: dict[str, Guarded] = {
    "accepting a job": lambda database, _: submitted(JobStore(database), new_job("https://example.com/b")),
    "applying a report": lambda database, job_id: applied(JobStore(database), scraped(job_id)),
    "taking unsent messages": lambda database, _: JobStore(database).claim(1),
    "canceling": lambda database, job_id: canceled(JobStore(database), job_id),
    "retrying": lambda database, job_id: retried(JobStore(database), job_id),
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
        writer.close()  # a database is copied while it has no connection
        url = create_database(postgres_server, name, template=urlsplit(database_url).path[1:])
        replicas.append(Database(make_conninfo(url, options="-c default_transaction_read_only=on")))
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
    jobs = JobStore(writer)
    replica = replicate() if missing == "the job" else None
    submitted(jobs, job)
    replica = replicate() if missing == "its failure" else replica
    applied(jobs, failed(job.job_id))
    replica = replica or replicate()
    before, stale = (stored_job(JobStore(each), CALLER.caller_id, job.job_id) for each in (writer, replica))
    assert (stale and stale.status) == {"nothing": "failed", "its failure": "scraping"}.get(missing)
    with pytest.raises(TransientError) as refused:
        guarded(replica, job.job_id)
    assert refused.value.code == "database_unavailable"
    assert stored_job(jobs, CALLER.caller_id, job.job_id) == before
    assert stored_job(JobStore(replica), CALLER.caller_id, job.job_id) == stale, "it may be read there"
