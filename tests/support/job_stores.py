"""Job stores with the acts on jobs, for suites that run over the twin and over Postgres."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.job import Job, SubmitRequest, SubmitResponse
from indexmill.contracts.messages import EmbedTask, StageResult, read
from indexmill.orchestrator.actions.cancel import CancelJob
from indexmill.orchestrator.actions.retry import RetryJobs
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.queries import JobFilter
from indexmill.orchestrator.store.results import Change, Verdict
from indexmill.orchestrator.store.rows import NewJob, OutboxRow
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.platform.postgres.database import Database
from tests.support.jobs import CALLER, applied, chunked, found_jobs, scraped, stored_job, submitted
from tests.twins.blobs import InMemoryBlobs
from tests.twins.clock import FrozenClock
from tests.twins.jobs import InMemoryJobs
from tests.twins.uploads import InMemoryUploads


@dataclass
class Sent:
    """A relay that keeps what it is given."""

    rows: list[OutboxRow] = field(default_factory=list)

    def send(self, rows: Sequence[OutboxRow]) -> None:
        """Keep the rows."""
        self.rows.extend(rows)


def canceled(
    store: JobStore,
    job_id: str,
    reason: str = "not wanted",
    ctx: CallerContext = CALLER,
    request_id: str = "",
) -> Job:
    """Cancel a job at `FrozenClock`'s first moment."""
    return CancelJob(store, Sent(), FrozenClock())(ctx, job_id, reason, request_id)


def retried(store: JobStore, job_id: str, message_id: str | None = None, request_id: str = "") -> Outcome:
    """Retry a job of the usual caller."""
    sent = Sent()
    use_case = RetryJobs(store, sent, lambda: message_id or str(uuid.uuid4()))
    return Outcome(use_case.one(CALLER, job_id, request_id), sent.rows)


@dataclass
class Outcome:
    """A job after an action, and the messages that were sent for it."""

    job: Job
    outbox: list[OutboxRow]


@dataclass
class Jobs:
    """A store, and a look behind it."""

    store: JobStore
    publish: Callable[..., bool]
    """Publishes a generation of a document as the embed worker does, for a job and with the content's digest
    when they are given; says whether it became visible."""
    history: Callable[[str], list[tuple[int, str | None, str]]]
    """A job's transitions: attempt, from, to."""
    audit: Callable[[str], list[tuple[str, int]]]
    """A job's audit events: name and attempt."""
    forget_payloads: Callable[[str, str], None]
    """Drops the kept messages of a job's stage."""
    age_keys: Callable[[], None]
    """Lets a day pass for idempotency keys."""
    blobs: InMemoryBlobs = field(default_factory=InMemoryBlobs)

    def job(self, job_id: str) -> Job:
        """Return a job of the usual caller."""
        job = stored_job(self.store, CALLER.caller_id, job_id)
        assert job is not None
        return job

    def find(self, caller_id: str = CALLER.caller_id, **wanted: str) -> list[Job]:
        """Return a caller's jobs that match, newest first."""
        return found_jobs(self.store, JobFilter(caller_id, limit=100, **wanted))  # type: ignore[arg-type]

    def submit(self, new: NewJob) -> str:
        """Submit one job and return its id."""
        ((accepted,), _) = submitted(self.store, new)
        return accepted.job_id

    def send(
        self,
        key: str | None = None,
        ctx: CallerContext = CALLER,
        isolation: CorpusIsolation = CorpusIsolation.CALLER,
        **request: object,
    ) -> SubmitResponse:
        """Submit a request as it comes over HTTP."""
        body = SubmitRequest.model_validate({"corpus_name": "docs", **request})
        return SubmitJobs(self.store, Sent(), self.blobs, InMemoryUploads(self.blobs), isolation=isolation)(
            ctx, body, "req-1", key
        )

    def cancel(self, job_id: str, reason: str = "not wanted", ctx: CallerContext = CALLER) -> Job:
        """Cancel a job at `FrozenClock`'s first moment."""
        return canceled(self.store, job_id, reason, ctx)

    def retry(self, job_id: str, message_id: str | None = None) -> Outcome:
        """Retry a job of the usual caller."""
        return retried(self.store, job_id, message_id)

    def apply(self, *results: StageResult) -> list[Verdict]:
        """Apply results and return their verdicts."""
        return [change.verdict for change in self.changes(*results)]

    def changes(self, *results: StageResult) -> list[Change]:
        """Apply results and return what they changed."""
        return applied(self.store, *results)

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
    """Return jobs in memory, which know no idempotency keys."""
    clock = FrozenClock()
    store = InMemoryJobs(clock)

    def publish(
        document_id: str,
        generation: int,
        job_id: str | None = None,
        digest: str | None = None,
        chunks: int = 1,
        *,
        text: bool = True,
    ) -> bool:
        row = store.document(document_id)
        clock.tick(1)
        row["updated_at"] = clock.now()
        if (row["published"] or 0) >= generation or row["min_generation"] > generation:
            return False
        row.update(published=generation, job_id=job_id, content_sha256=digest)
        row["text_generation"] = generation if text else row["text_generation"]
        return True

    def history(job_id: str) -> list[tuple[int, str | None, str]]:
        own = (row for row in store.job_history.values() if row["job_id"] == job_id)
        return [(row["attempt"], row["from_status"], row["to_status"]) for row in own]

    def audit(job_id: str) -> list[tuple[str, int]]:
        replay = store.jobs[job_id]["replay_of"] is not None
        moves = [(_event(row, replay), row["attempt"]) for row in _of(job_id, store.job_history)]
        stale = [("stale_callback", row["attempt"]) for row in _of(job_id, store.stale)]
        return [(event, attempt) for event, attempt in moves if event] + stale

    def forget(job_id: str, stage: str) -> None:
        for key, row in list(store.outbox.items()):
            if (row["job_id"], row["stage"]) == (job_id, stage):
                del store.outbox[key]

    return Jobs(store, publish, history, audit, forget, lambda: None)


def _of(job_id: str, table: Mapping[Any, dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in table.values() if row["job_id"] == job_id]


def _event(transition: dict[str, Any], replay: bool) -> str:
    """Return the audit event of a transition; "" for none."""
    match transition["from_status"], transition["to_status"]:
        case _, "done":
            return "job_completed"
        case _, "failed":
            return "job_canceled" if transition["detail"]["code"] == "canceled" else "job_failed"
        case "failed", _:
            return "job_retried"
        case None, _:
            return "job_replayed" if replay else "job_submitted"
    return ""


@contextmanager
def postgres_jobs(url: str) -> Iterator[Jobs]:
    """Yield jobs in the database at `url`."""
    database, other = Database(url), Database(url)

    def publish(
        document_id: str,
        generation: int,
        job_id: str | None = None,
        digest: str | None = None,
        chunks: int = 1,
        *,
        text: bool = True,
    ) -> bool:
        values = {"document": document_id, "generation": generation, "job": job_id, "digest": digest}
        values |= {"chunks": chunks, "text": text}
        with other.connection().transaction():
            other.connection().execute(
                "INSERT INTO documents (document_id, corpus_id) SELECT %(document)s, corpora.id FROM corpora"
                " LIMIT 1 ON CONFLICT (document_id) DO UPDATE SET updated_at = clock_timestamp()",
                values,
            )
            done = other.connection().execute(
                "UPDATE documents SET published = %(generation)s, job_id = %(job)s, chunk_count = %(chunks)s,"
                " content_sha256 = %(digest)s,"
                " text_generation = CASE WHEN %(text)s THEN %(generation)s ELSE text_generation END"
                " WHERE document_id = %(document)s"
                " AND coalesce(published, 0) < %(generation)s AND min_generation <= %(generation)s",
                values,
            )
        return done.rowcount == 1

    def history(job_id: str) -> list[tuple[int, str | None, str]]:
        statement = "SELECT attempt, from_status, to_status FROM job_history WHERE job_id = %s ORDER BY seq"
        return other.connection().execute(statement, (job_id,)).fetchall()

    def audit(job_id: str) -> list[tuple[str, int]]:
        columns = "event, (fields->>'attempt')::int"
        statement = f"SELECT {columns} FROM audit_events WHERE fields->>'job_id' = %s ORDER BY seq"
        return other.connection().execute(statement.encode(), (job_id,)).fetchall()

    def forget(job_id: str, stage: str) -> None:
        other.connection().execute("DELETE FROM outbox WHERE job_id = %s AND stage = %s", (job_id, stage))

    def age() -> None:
        other.connection().execute("UPDATE idempotency_keys SET created_at = now() - interval '24 hours 1 s'")

    yield Jobs(JobStore(database), publish, history, audit, forget, age)
    database.close()
    other.close()
