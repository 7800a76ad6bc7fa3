"""Backends of the system under test: in memory, or Postgres and pgvector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from indexmill.contracts.pipeline import BY_NAME
from indexmill.embedding.adapters.pgvector.index import PgVectorIndex
from indexmill.embedding.ports import DocumentVersion, PublishOutcome, VectorIndex
from indexmill.orchestrator.admission.admit import Quota
from indexmill.orchestrator.store.admission import INTERNAL, JobLimits
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.platform.postgres.database import Database
from tests.faults.model.fake_sqs import FakeQueue
from tests.faults.model.invariants import History
from tests.faults.model.message_locations import WorkItem
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs, Row
from tests.twins.sweep_store import InMemorySweep
from tests.twins.vector_index import InMemoryVectorIndex

_AGE = """
WITH here AS (
    SELECT DISTINCT caller_id FROM jobs WHERE status NOT IN ('done', 'failed')
), outbox_aged AS (
    UPDATE outbox SET claimed_until = claimed_until - %(by)s * interval '1 second',
        sent_at = sent_at - %(by)s * interval '1 second'
    FROM here WHERE outbox.caller_id = here.caller_id
), starts_aged AS (
    UPDATE earlier_starts SET started_at = started_at - %(by)s * interval '1 second'
), admissions_aged AS (
    UPDATE jobs SET admitted_at = admitted_at - %(by)s * interval '1 second'
    WHERE status IN ('done', 'failed')
), counts_aged AS (
    UPDATE sweep_state SET counted_at = counted_at - %(by)s * interval '1 second'
)
UPDATE jobs SET updated_at = updated_at - %(by)s * interval '1 second',
    admitted_at = admitted_at - %(by)s * interval '1 second'
WHERE status NOT IN ('done', 'failed')
"""
LIMITS: Final = JobLimits({INTERNAL: Quota(max_per_hour=6)})
"""Fewer starts an hour than an order can have jobs and retries."""
_UNACCOUNTED = """
SELECT id, status, attempt FROM jobs
WHERE caller_id = %s AND status IN ('scraping', 'chunking', 'embedding') AND NOT EXISTS (
    SELECT FROM outbox
    WHERE job_id = jobs.id AND stage = jobs.status AND outbox.attempt = jobs.attempt
        AND sent_at IS NULL AND parked_at IS NULL
)
"""


@dataclass(frozen=True)
class Backend:
    """Stores, index and clock, and reads of one caller's rows for the invariants."""

    store: JobStore
    view: Any
    """The sweeper's store."""
    index: VectorIndex
    clock: FrozenClock
    age: Callable[[int], None]
    """Move the store's timestamps so many seconds into the past."""
    jobs: Callable[[str], dict[str, str]]
    """Status by job id."""
    history: Callable[[str], History]
    """Transitions in order."""
    unaccounted: Callable[[str], set[WorkItem]]
    """Work items of active jobs whose message is not among the unsent outbox rows."""
    close: Callable[[], None]


@dataclass(frozen=True)
class QueueDepth:
    """Backlog of a queue and its dead-letter queue, as the sweeper counts it."""

    queues: Sequence[FakeQueue]

    def messages(self) -> int:
        """Return how many there are."""
        return sum(len(queue.messages) for queue in self.queues)


class OrderedJobs(JobStore):
    """Deterministic order of claimed rows: an UPDATE returns them in physical order."""

    def claim(self, limit: int) -> list[OutboxRow]:
        """Claim, in the order of ids."""
        return sorted(super().claim(limit), key=lambda row: row.id)


class SharedCatalogue(InMemoryVectorIndex):
    """Index that shares the catalogue of documents with the job store, as in one database."""

    def __init__(self, store: InMemoryJobs) -> None:
        super().__init__()
        self._store = store

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Publish what the catalogue allows, and record it there."""
        for document_id, row in self._store.documents.items():
            self.fence(document_id, row["min_generation"])
        seen = super().publish(versions)
        for version, one in zip(versions, seen, strict=True):
            if one is PublishOutcome.PUBLISHED:
                row = self._store.document(version.target.document_id)
                now, job_id = self._store.clock.now(), version.job_id
                row.update(published=version.generation, updated_at=now, job_id=job_id)
        return seen


def in_memory() -> Backend:
    """Return a backend of in-memory fakes."""
    clock = FrozenClock()
    store = InMemoryJobs(clock, limits=LIMITS)

    def own(caller_id: str) -> list[Row]:
        return [row for row in store.jobs.values() if row["caller_id"] == caller_id]

    def jobs(caller_id: str) -> dict[str, str]:
        return {row["id"]: row["status"] for row in own(caller_id)}

    def history(caller_id: str) -> History:
        ids, columns = jobs(caller_id), ("job_id", "attempt", "from_status", "to_status")
        found = [row for row in store.job_history.values() if row["job_id"] in ids]
        return [tuple(row[name] for name in columns) for row in found]

    def unaccounted(caller_id: str) -> set[WorkItem]:
        in_flight = {(row["id"], row["status"], row["attempt"]) for row in own(caller_id)}
        unsent = (row for row in store.outbox.values() if not row["sent_at"] and not row["parked_at"])
        inside = {(row["job_id"], row["stage"], row["attempt"]) for row in unsent}
        return {work for work in in_flight - inside if work[1] in BY_NAME}

    index, view = SharedCatalogue(store), InMemorySweep(store)
    return Backend(store, view, index, clock, lambda _: None, jobs, history, unaccounted, lambda: None)


def postgres(database: Database) -> Backend:
    """Return a backend on a migrated database; the next example uses the same one."""

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

    def unaccounted(caller_id: str) -> set[WorkItem]:
        return set(database.connection().execute(_UNACCOUNTED, (caller_id,)).fetchall())

    def close() -> None:
        # Unsent messages must not be delivered in the next example.
        database.connection().execute("UPDATE outbox SET sent_at = now() WHERE sent_at IS NULL")

    index = PgVectorIndex(database)
    store, view, clock = OrderedJobs(database, LIMITS), SweepStore(database), FrozenClock()
    return Backend(store, view, index, clock, age, jobs, history, unaccounted, close)
