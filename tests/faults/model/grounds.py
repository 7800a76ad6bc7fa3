"""The twins, and Postgres, as ground for the model."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.embedding.adapters.pgvector_index import PgVectorIndex
from indexmill.embedding.ports import DocumentVersion, Visibility
from indexmill.orchestrator.adapters.postgres_jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres_sweep import PostgresSweep
from indexmill.orchestrator.adapters.postgres_verbs import PostgresVerbs
from indexmill.orchestrator.ports import OutboxRow
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from indexmill.testing.job_records import CatalogueRow
from indexmill.testing.job_store import InMemoryJobs
from indexmill.testing.job_verbs import InMemoryVerbs
from indexmill.testing.sweep_store import InMemorySweep
from indexmill.testing.vector_index import InMemoryVectorIndex
from tests.faults.model.ends import History
from tests.faults.model.ground import Ground
from tests.faults.model.places import Work

_AGE = """
WITH here AS (
    SELECT DISTINCT caller_id FROM jobs WHERE status NOT IN ('done', 'failed')
), outbox_aged AS (
    UPDATE outbox SET claimed_until = claimed_until - %(by)s * interval '1 second',
        sent_at = sent_at - %(by)s * interval '1 second'
    FROM here WHERE outbox.caller_id = here.caller_id
), counts_aged AS (
    UPDATE sweep_state SET counted_at = counted_at - %(by)s * interval '1 second'
)
UPDATE jobs SET updated_at = updated_at - %(by)s * interval '1 second' WHERE status NOT IN ('done', 'failed')
"""
_OUTSIDE = """
SELECT id, status, attempt FROM jobs
WHERE caller_id = %s AND status IN ('scraping', 'chunking', 'embedding') AND NOT EXISTS (
    SELECT FROM outbox
    WHERE job_id = jobs.id AND stage = jobs.status AND outbox.attempt = jobs.attempt
        AND sent_at IS NULL AND parked_at IS NULL
)
"""


class OrderedJobs(PostgresJobs):
    """The same rows in the same order each time: an UPDATE returns them as they lie on disk."""

    def claim(self, limit: int) -> list[OutboxRow]:
        """Claim, by id."""
        return sorted(super().claim(limit), key=lambda row: row.id)

    def take_over(self, message_ids: Sequence[str]) -> list[OutboxRow]:
        """Take over, by id."""
        return sorted(super().take_over(message_ids), key=lambda row: row.id)


class SharedCatalogue(InMemoryVectorIndex):
    """An index whose documents are those of the jobs' catalogue, as in one database."""

    def __init__(self, store: InMemoryJobs) -> None:
        super().__init__()
        self._store = store

    def publish(self, versions: Sequence[DocumentVersion]) -> list[Visibility]:
        """Publish what the catalogue allows, and note it there."""
        rows = self._store.catalogue
        for document_id, row in rows.items():
            self.fence(document_id, row.min_generation)
        seen = super().publish(versions)
        for version, one in zip(versions, seen, strict=True):
            if one is Visibility.PUBLISHED:
                row = rows.setdefault(version.target.document_id, CatalogueRow())
                row.published, row.updated_at = version.generation, self._store.clock.now()
        return seen


def twins() -> Ground:
    """Return a ground in memory."""
    clock = FrozenClock()
    store = InMemoryJobs(clock)

    def jobs(caller_id: str) -> dict[str, str]:
        return {
            job_id: record.job.status.value
            for job_id, record in store.records.items()
            if record.caller_id == caller_id
        }

    def history(caller_id: str) -> History:
        own = jobs(caller_id)
        return [entry for entry in store.history if entry[0] in own]

    def outside(caller_id: str) -> set[Work]:
        at_work = {
            (job_id, record.job.status.value, record.job.attempt)
            for job_id, record in store.records.items()
            if record.caller_id == caller_id and record.active
        }
        unsent = (row.row for row in store.rows.values() if not row.sent and not row.parked)
        return at_work - {(row.job_id, row.stage, row.attempt) for row in unsent}

    index, verbs = SharedCatalogue(store), InMemoryVerbs(store)
    view = InMemorySweep(store)
    return Ground(store, verbs, view, index, clock, lambda _: None, jobs, history, outside, lambda: None)


def postgres(database: Database) -> Ground:
    """Return a ground on a migrated database, which is used again by the next example."""

    def age(seconds: int) -> None:
        database.connection().execute(_AGE, {"by": seconds})

    def jobs(caller_id: str) -> dict[str, str]:
        found = database.connection().execute(
            "SELECT id, status FROM jobs WHERE caller_id = %s", (caller_id,)
        )
        return dict(found.fetchall())

    def history(caller_id: str) -> History:
        found = database.connection().execute(
            "SELECT job_id, h.attempt, from_status, to_status FROM job_history h"
            " JOIN jobs ON jobs.id = job_id WHERE caller_id = %s ORDER BY seq",
            (caller_id,),
        )
        return found.fetchall()

    def outside(caller_id: str) -> set[Work]:
        return set(database.connection().execute(_OUTSIDE, (caller_id,)).fetchall())

    def close() -> None:
        # Copies that were still to be sent must not turn up in the next example.
        database.connection().execute("UPDATE outbox SET sent_at = now() WHERE sent_at IS NULL")

    index = PgVectorIndex(database)
    verbs, view = PostgresVerbs(database), PostgresSweep(database)
    store, clock = OrderedJobs(database), FrozenClock()
    return Ground(store, verbs, view, index, clock, age, jobs, history, outside, close)
