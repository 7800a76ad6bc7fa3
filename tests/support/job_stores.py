"""Job stores with their verbs, for suites that run over the twin and over Postgres alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from indexmill.contracts.job import Job
from indexmill.contracts.messages import EmbedTask, StageResult, read
from indexmill.orchestrator.adapters.postgres_jobs import PostgresJobs
from indexmill.orchestrator.adapters.postgres_verbs import PostgresVerbs
from indexmill.orchestrator.ports import Change, JobStore, NewJob, OutboxRow
from indexmill.orchestrator.results import Decider
from indexmill.orchestrator.state_machine import Verdict
from indexmill.orchestrator.verb_ports import JobVerbs
from indexmill.platform.postgres.database import Database
from indexmill.testing.clock import FrozenClock
from indexmill.testing.job_records import CatalogueRow
from indexmill.testing.job_store import InMemoryJobs
from indexmill.testing.job_verbs import InMemoryVerbs
from tests.support.jobs import CALLER, chunked, scraped


@dataclass
class Jobs:
    """A store, its verbs, and a look behind both."""

    store: JobStore
    verbs: JobVerbs
    publish: Callable[[str, int], bool]
    """Publishes a generation of a document as the embed worker does; says whether it became visible."""
    history: Callable[[str], list[tuple[int, str | None, str]]]
    """A job's transitions: attempt, from, to."""
    forget_payloads: Callable[[str, str], None]
    """Drops the kept messages of a job's stage."""
    age_keys: Callable[[], None]
    """Lets a day pass for idempotency keys."""

    def job(self, job_id: str) -> Job:
        """Return a job of the usual caller."""
        job = self.store.get(CALLER.caller_id, job_id)
        assert job is not None
        return job

    def submit(self, new: NewJob) -> str:
        """Submit one job and return its id."""
        (accepted,) = self.store.submit([new]).accepted
        return accepted.job_id

    def apply(self, *results: StageResult) -> list[Verdict]:
        """Apply results and return their verdicts."""
        return [change.decision.verdict for change in self.changes(*results)]

    def changes(self, *results: StageResult) -> list[Change]:
        """Apply results and return what they changed."""
        return self.store.apply(results, Decider(FrozenClock()))

    def up_to_embedding(self, new: NewJob) -> tuple[str, EmbedTask]:
        """Submit a job and bring it to its embed message."""
        job_id = self.submit(new)
        self.changes(scraped(job_id))
        return job_id, embed_task(self.changes(chunked(job_id))[0].outbox)


def embed_task(rows: Sequence[OutboxRow]) -> EmbedTask:
    """Return the one embed message among `rows`."""
    (row,) = [row for row in rows if row.stage == "embedding"]
    task = read(EmbedTask, row.payload)
    assert (task.message_id, task.job_id, task.attempt) == (row.id, row.job_id, row.attempt)
    return task


def twin_jobs() -> Jobs:
    """Return jobs in memory."""
    clock = FrozenClock()
    store = InMemoryJobs(clock)

    def publish(document_id: str, generation: int) -> bool:
        row = store.catalogue.setdefault(document_id, CatalogueRow())
        clock.tick(1)
        row.updated_at = clock.now()
        if (row.published or 0) >= generation or row.min_generation > generation:
            return False
        row.published = generation
        return True

    def history(job_id: str) -> list[tuple[int, str | None, str]]:
        return [(attempt, before, to) for one, attempt, before, to in store.history if one == job_id]

    def forget(job_id: str, stage: str) -> None:
        for key, row in list(store.rows.items()):
            if (row.row.job_id, row.row.stage) == (job_id, stage):
                del store.rows[key]

    return Jobs(store, InMemoryVerbs(store), publish, history, forget, lambda: clock.tick(86_401))


@contextmanager
def postgres_jobs(url: str) -> Iterator[Jobs]:
    """Yield jobs in the database at `url`."""
    database, other = Database(url), Database(url)

    def publish(document_id: str, generation: int) -> bool:
        values = {"document": document_id, "generation": generation}
        with other.connection().transaction():
            other.connection().execute(
                "INSERT INTO documents (document_id, corpus_id) SELECT %(document)s, corpora.id FROM corpora"
                " LIMIT 1 ON CONFLICT (document_id) DO UPDATE SET updated_at = clock_timestamp()",
                values,
            )
            done = other.connection().execute(
                "UPDATE documents SET published = %(generation)s WHERE document_id = %(document)s"
                " AND coalesce(published, 0) < %(generation)s AND min_generation <= %(generation)s",
                values,
            )
        return done.rowcount == 1

    def history(job_id: str) -> list[tuple[int, str | None, str]]:
        statement = "SELECT attempt, from_status, to_status FROM job_history WHERE job_id = %s ORDER BY seq"
        return other.connection().execute(statement, (job_id,)).fetchall()

    def forget(job_id: str, stage: str) -> None:
        other.connection().execute("DELETE FROM outbox WHERE job_id = %s AND stage = %s", (job_id, stage))

    def age() -> None:
        other.connection().execute("UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 s'")

    yield Jobs(PostgresJobs(database), PostgresVerbs(database), publish, history, forget, age)
    database.close()
    other.close()
