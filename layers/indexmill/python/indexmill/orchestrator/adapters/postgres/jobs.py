"""JobStore on Postgres: state, history and messages in one database, each row operation one named statement.

Lock order: idempotency key; sites, in the order of their names; jobs, in the order of ids; inbox; documents,
in the order of ids; crawls, in the order of ids; dependents of ended jobs, in the order of ids; last the
advisory locks of callers, in the order of ids. After those a row of a job is taken only if no other
transaction locked it. Only chains of dependencies, and the sites of pages that a crawl adds, can break the
order: then one of two transactions is the victim of a deadlock, and is run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from indexmill.contracts.cost import Amounts, Spent
from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.messages import Retrying, StageResult
from indexmill.contracts.pipeline import FIRST
from indexmill.orchestrator.actions.ports import LockedJob
from indexmill.orchestrator.adapters.postgres.crawls import CrawlRows
from indexmill.orchestrator.adapters.postgres.reads import (
    SQL,
    PaceCache,
    Row,
    as_locked_job,
    as_state,
    as_usage,
    remembered,
)
from indexmill.orchestrator.adapters.postgres.sites import SiteRows
from indexmill.orchestrator.admission.admit import (
    MOST,
    MULTIPLIERS,
    CallerQueue,
    Candidate,
    GlobalUsage,
    Limits,
)
from indexmill.orchestrator.jobs.rows import JobState, OutboxRow
from indexmill.orchestrator.jobs.store import JobsTx, RunAgain, T
from indexmill.orchestrator.results.ports import DeadLetter, JobUpdate, Transition
from indexmill.orchestrator.submission.ports import NewJob
from indexmill.orchestrator.sweeper.ports import Count
from indexmill.platform.postgres.database import Connection, Database, storable

_RUNS: Final = 5
"""Of a transaction that met another one's change each time."""
_MESSAGE: Final = ("id", "job_id", "caller_id", "attempt", "stage", "payload")
_SHARED: Final = (
    "batch_id",
    "tier",
    "job_type",
    "replay_of",
    "request_id",
    "caller_type",
    "submitted_by",
    "mark_stale",
    "kind",
    "linked",
    "accept",
)
"""Columns that are the same for all jobs of a submit."""


class PostgresTx(CrawlRows, SiteRows):
    """Row operations in the connection's transaction."""

    # A submit

    def take_key(self, caller_id: str, key: str, digest: str) -> bool:
        """Claim an idempotency key; a concurrent second submit waits here for the first one's commit."""
        return self._one("take_key", caller_id=caller_id, key=key, digest=digest) is not None

    def kept_answer(self, caller_id: str, key: str) -> tuple[str, str] | None:
        """Return digest and answer of the request that used the key."""
        row = self._one("kept_answer", caller_id=caller_id, key=key)
        return (row["digest"], row["answer"]) if row else None

    def keep_answer(self, caller_id: str, key: str, answer: str) -> None:
        """Keep the answer (JSON) under its key."""
        self._do("keep_answer", caller_id=caller_id, key=key, answer=answer)

    def root_of(self, caller_id: str) -> str:
        """Return the caller that has the jobs of `caller_id`."""
        row = self._one("root_of", caller_id=caller_id)
        return str(row["root"]) if row else caller_id

    def add_alias(self, alias: str, root: str) -> None:
        """Record that `alias` is another id of `root`."""
        self._do("add_alias", alias=alias, root=root)

    def insert_jobs(
        self, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None], spent: Amounts
    ) -> set[str]:
        """Insert jobs with corpus, history and message."""
        target = jobs[0].target
        found = self._all(
            "insert_jobs",
            job_ids=[job.job_id for job in jobs],
            urls=[job.submitted_url for job in jobs],
            canonical=[job.target.url for job in jobs],
            documents=[job.target.document_id for job in jobs],
            outbox_ids=[job.first.id for job in jobs],
            payloads=[job.first.payload for job in jobs],
            priorities=[job.priority for job in jobs],
            forced=[job.forced for job in jobs],
            expected=[expected[job.job_id] for job in jobs],
            digests=[job.payload_digest for job in jobs],
            given=[_json(job.given) for job in jobs],
            sites=[job.site for job in jobs],
            eligible=[job.eligible_at for job in jobs],
            corpus_key=target.corpus_key,
            caller_id=target.caller_id,
            corpus_name=target.corpus_name,
            **{name: getattr(jobs[0], name) for name in _SHARED},
            budget=_json(jobs[0].budget),
            recipe=None if jobs[0].recipe is None else Jsonb(dict(jobs[0].recipe)),
            first=FIRST,
            spent=Jsonb(spent),
        )
        return {row["id"] for row in found}

    # Dependencies

    def lock_dependencies(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Lock the caller's jobs among `job_ids`, note that others depend on them, return their statuses."""
        return self._statuses("lock_dependencies", caller_id=caller_id, job_ids=list(job_ids))

    def insert_dependencies(self, job_ids: Sequence[str], depends_on: Sequence[str]) -> None:
        """Let each of `job_ids` depend on all of `depends_on`."""
        self._do("insert_dependencies", job_ids=list(job_ids), depends_on=list(depends_on))

    def has_cycle(self, job_ids: Sequence[str]) -> bool:
        """Return whether one of the jobs depends on itself."""
        return self._found("has_cycle", job_ids=list(job_ids))

    def block_jobs(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs wait for dependencies."""
        self._do("block_jobs", job_ids=list(job_ids))

    def lock_dependents(self, job_ids: Sequence[str]) -> list[str]:
        """Lock and return the pending jobs that depend on `job_ids`."""
        return [row["id"] for row in self._all("lock_dependents", job_ids=list(job_ids))]

    def fail_dependents(self, job_ids: Sequence[str]) -> None:
        """Fail those of the pending jobs that depend on a failed one, and what depends on them."""
        self._do("fail_dependents", job_ids=list(job_ids), first=FIRST)

    def unblock_jobs(self, job_ids: Sequence[str]) -> list[str]:
        """Clear the mark of those of the pending jobs whose dependencies are all done; return their ids."""
        return [row["id"] for row in self._all("unblock_jobs", job_ids=list(job_ids))]

    def unmet_dependencies(self, job_id: str) -> dict[str, JobStatus]:
        """Lock the dependencies of a job that are not done and return their statuses."""
        return self._statuses("unmet_dependencies", job_id=job_id)

    # Admission

    def queues_to_admit(
        self, callers: Sequence[str], done: Sequence[str]
    ) -> tuple[list[CallerQueue], GlobalUsage] | None:
        """Lock the callers, and others that wait for capacity, and return their queues."""
        quotas = {tier: self._limits.of(tier) for tier in MULTIPLIERS}
        found = self._all(
            "queues_to_admit",
            callers=list(callers),
            done=list(done),
            daily=[tier for tier, quota in quotas.items() if quota.chunks_per_day is not None],
            tiers=list(quotas),
            max_active=[quota.max_active for quota in quotas.values()],
            remembered=[remembered(quota) for quota in quotas.values()],
            window=self._limits.window,
            most=MOST,
        )
        if not found:
            return None
        _, overall = as_usage(found[0])
        return [_queue(row) for row in found], overall

    def start_jobs(self, job_ids: Sequence[str], spent: Amounts) -> list[OutboxRow]:
        """Admit the pending jobs; one that another transaction has locked is left out."""
        started = self.messages("start_jobs", job_ids=list(job_ids), first=FIRST, spent=Jsonb(spent))
        order = {job_id: at for at, job_id in enumerate(job_ids)}
        return sorted(started, key=lambda row: order[row.job_id])

    def mark_waiting_for_capacity(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs would start with more capacity."""
        self._do("mark_waiting_for_capacity", job_ids=list(job_ids))

    def clear_waiting_for_capacity(self, callers: Sequence[str]) -> None:
        """Clear that mark for the callers' pending jobs."""
        self._do("clear_waiting_for_capacity", callers=list(callers))

    # Job actions

    def lock_job(self, caller_id: str, job_id: str) -> LockedJob | None:
        """Lock and return the caller's job."""
        row = self._one("lock_job", caller_id=caller_id, job_id=job_id)
        return as_locked_job(row) if row else None

    def lock_batch(self, caller_id: str, batch_id: str, most: int) -> list[LockedJob]:
        """Lock and return the first jobs of the caller's batch that have not ended, in the order of ids."""
        found = self._all("lock_batch", caller_id=caller_id, batch_id=batch_id, most=most)
        return [as_locked_job(row) for row in found]

    def cancel_jobs(
        self, jobs: Mapping[str, JobStatus], errors: Sequence[JobError], request_id: str | None
    ) -> None:
        """Fail jobs with history, and park their messages that were not sent."""
        statuses = [status.value for status in jobs.values()]
        values = {"job_ids": list(jobs), "statuses": statuses, "errors": [_json(each) for each in errors]}
        self._do("cancel_jobs", request_id=request_id, **values)

    def restart_job(
        self, row: OutboxRow, generation: int | None, request_id: str | None, *, blocked: bool
    ) -> None:
        """Make the failed job pending, with history and the message it starts with."""
        blocked_by = "dependency" if blocked else None
        values = {"generation": generation, "blocked_by": blocked_by, "request_id": request_id}
        self._do("restart_job", **_message(row), **values, first=FIRST)

    # Results

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock and return the jobs, each with a fresh generation."""
        return {row["id"]: as_state(row) for row in self._all("lock_jobs", job_ids=list(job_ids))}

    def spent(self, job_ids: Sequence[str]) -> dict[str, Spent]:
        """Return what the jobs used so far, in all attempts."""
        found = self._all("spent", job_ids=list(job_ids))
        return {row.pop("job_id"): Spent(**{name: row[name] or 0 for name in row}) for row in found}

    def receive(self, message_ids: Sequence[str]) -> set[str]:
        """Note the messages as received; return those that were not received before."""
        return {row["message_id"] for row in self._all("receive", message_ids=list(message_ids))}

    def forget(self, message_ids: Sequence[str]) -> None:
        """Let the messages count as not received."""
        self._do("forget", message_ids=list(message_ids))

    def save_results(self, updates: Sequence[JobUpdate], transitions: Sequence[Transition]) -> None:
        """Write the jobs' new columns, their transitions, and the messages that follow."""
        messages = [row for each in transitions for row in each.outbox]
        self._do(
            "save_results",
            job_ids=[each.job_id for each in updates],
            statuses=[each.status.value for each in updates],
            stages=[each.error.stage if each.error else None for each in updates],
            errors=[_json(each.error) for each in updates],
            titles=[each.title for each in updates],
            counts=[each.chunk_count for each in updates],
            generations=[each.generation for each in updates],
            raw_refs=[_json(each.stored) for each in updates],
            facts=[Jsonb(each.facts) if each.facts else None for each in updates],
            changes=[each.change for each in updates],
            unchanged=[each.unchanged for each in updates],
            duplicates=[_json(each.duplicate_of) for each in updates],
            h_jobs=[each.job_id for each in transitions],
            h_attempts=[each.attempt for each in transitions],
            h_from=[each.from_status.value for each in transitions],
            h_to=[each.to_status.value for each in transitions],
            h_causes=[each.cause for each in transitions],
            h_details=[_json(each.error) for each in transitions],
            h_tries=[each.tries for each in transitions],
            h_workers=[each.worker for each in transitions],
            h_elapsed=[each.elapsed_ms for each in transitions],
            h_spent=[None if each.spent is None else Jsonb(each.spent) for each in transitions],
            o_ids=[row.id for row in messages],
            o_jobs=[row.job_id for row in messages],
            o_attempts=[row.attempt for row in messages],
            o_stages=[row.stage for row in messages],
            o_payloads=[row.payload for row in messages],
        )

    def note_stale(self, results: Sequence[StageResult]) -> None:
        """Add an audit event for each result of an earlier attempt."""
        told = {"job_id", "attempt", "stage", "status", "failure", "request_id"}
        self._do(
            "note_stale", results=Jsonb([each.model_dump(mode="json", include=told) for each in results])
        )

    def save_retries(self, notes: Mapping[str, Retrying]) -> None:
        """Write until when a job's stage waits for its next try, by job id."""
        self._do(
            "save_retries",
            job_ids=list(notes),
            tries=[note.tries for note in notes.values()],
            next_retry_at=[note.next_retry_at for note in notes.values()],
            retry_in_s=[note.retry_in_s for note in notes.values()],
            causes=[note.cause for note in notes.values()],
            failures=[_json(note.failure) for note in notes.values()],
        )

    def redispatch(self, row: OutboxRow, generation: int | None) -> None:
        """Insert a copy of the current stage's message with the generation that it may publish."""
        self._do("redispatch", **_message(row), generation=generation)

    # Counts of the sweeper

    def last_counts(self, stages: Collection[str]) -> dict[str, Count]:
        """Lock and return the counts of the last tick, by stage."""
        found = self._all("last_counts", stages=sorted(stages))
        return {row["stage"]: Count(row["missing"], row["at"]) for row in found}

    def keep_counts(self, counts: Mapping[str, Count]) -> None:
        """Keep counts, by stage; an older one changes nothing."""
        stages = sorted(counts)
        self._do(
            "keep_counts",
            stages=stages,
            missing=[counts[stage].missing for stage in stages],
            at=[counts[stage].at for stage in stages],
        )

    def _statuses(self, name: str, **values: Any) -> dict[str, JobStatus]:
        return {row["id"]: JobStatus(row["status"]) for row in self._all(name, **values)}


class PostgresJobs:
    """Transactions of the use cases, and the relay's view of the outbox."""

    def __init__(self, database: Database, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._limits = limits or Limits()
        self._pace = PaceCache()

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work` in one transaction, and again when a unique index refused it or work asks for it.

        Then another transaction committed a row between the read and the write; the next read sees it.
        """
        for _ in range(_RUNS):
            try:
                return self._database.run(lambda connection: work(self._tx(connection)))
            except (UniqueViolation, RunAgain):
                continue
        raise TransientError(
            ErrorCode.DATABASE_UNAVAILABLE, "The jobs of these documents change too fast.", retry_after=1
        )

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads, each a transaction of its own."""
        return self._database.read(lambda connection: work(self._tx(connection)))

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that no process has claimed."""
        return self._database.read(lambda connection: self._tx(connection).messages("claim", limit=limit))

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        self._do("mark_sent", ids=list(ids))

    def mark_failed(self, ids: Sequence[str], error: str, *, unavailable: bool = False) -> None:
        """Give claimed messages back after a failed try."""
        self._do("mark_failed", ids=list(ids), error=error, counted=0 if unavailable else 1)

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        """Keep a message that could not be handled, without characters that Postgres cannot store."""
        plain = ("queue", "receive_count", "cause", "stage", "attempt", "source_id")
        kept: tuple[bool] = self._do(
            "record_dead_letter",
            **{name: getattr(letter, name) for name in plain},
            body=storable(letter.body),
            reason=storable(letter.reason),
            job_id=storable(letter.job_id),
            message_id=storable(letter.message_id),
            body_ref=Jsonb(letter.body_ref.model_dump()) if letter.body_ref else None,
            attributes=Jsonb(dict(letter.attributes)) if letter.attributes is not None else None,
        ).fetchone()
        return kept[0]

    def _do(self, name: str, **values: object) -> Any:
        return self._database.read(lambda connection: connection.execute(SQL[name], values))

    def _tx(self, connection: Connection) -> PostgresTx:
        return PostgresTx(connection, self._limits, self._pace)


def _queue(row: Row) -> CallerQueue:
    usage, _ = as_usage(row)
    columns: Iterable[Sequence[Any]] = (row[name] or () for name in ("ids", "priorities", "since"))
    return CallerQueue(usage, [Candidate(*each) for each in zip(*columns, strict=True)])


def _message(row: OutboxRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _MESSAGE}


def _json(model: BaseModel | None) -> Jsonb | None:
    return Jsonb(model.model_dump(mode="json", exclude_none=True)) if model else None
