"""A replica that is behind decides nothing: whatever guards a change can only be asked of the writer."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.adapters.postgres_jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres_verbs import PostgresVerbs
from indexmill.orchestrator.results import Decider
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from tests.support.jobs import CALLER, new_job, scraped

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
def reader(database_url: str) -> Iterator[Database]:
    """Yield sessions as a replica has them: they read, and cannot lock or write."""
    database = Database(database_url, options="-c default_transaction_read_only=on")
    yield database
    database.close()


@pytest.mark.fault("F34")
@pytest.mark.parametrize("guarded", GUARDED.values(), ids=GUARDED)
def test_no_change_is_decided_by_a_reader(writer: Database, reader: Database, guarded: Guarded) -> None:
    job = new_job()
    PostgresJobs(writer).submit([job])
    before = PostgresJobs(writer).get(CALLER.caller_id, job.job_id)
    with pytest.raises(TransientError) as refused:
        guarded(reader, job.job_id)
    assert refused.value.code == "database_unavailable"
    assert PostgresJobs(writer).get(CALLER.caller_id, job.job_id) == before
    assert PostgresJobs(reader).get(CALLER.caller_id, job.job_id) == before, "it may be read there"
