"""Job store port: transactions in which use cases read and write rows, and the relay's view of the outbox."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

from indexmill.contracts.http_history import JobHistory
from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Retrying, Target
from indexmill.orchestrator.admission.choose import CallerQueue, GlobalUsage, Pace, Usage
from indexmill.orchestrator.admission.quotas import Limits
from indexmill.orchestrator.ports import (
    BatchLine,
    DeadLetter,
    InFlight,
    JobFilter,
    JobNews,
    JobState,
    JobUpdate,
    LockedJob,
    NewJob,
    Original,
    OutboxRow,
    Transition,
)
from indexmill.orchestrator.ports_sweep import Count

T = TypeVar("T")


class JobsTx(Protocol):
    """Row operations on jobs and what belongs to them. They decide nothing; each is one statement.

    Rows that are locked stay locked until the commit. The lock order is in the Postgres adapter.
    """

    @property
    def limits(self) -> Limits:
        """The configured quotas and bounds."""
        ...

    # A submit

    def take_key(self, caller_id: str, key: str, digest: str) -> bool:
        """Claim an idempotency key for a request's digest; False when it was used within 24 hours."""
        ...

    def kept_answer(self, caller_id: str, key: str) -> tuple[str, str] | None:
        """Return digest and answer of the request that used the key."""
        ...

    def keep_answer(self, caller_id: str, key: str, answer: str) -> None:
        """Keep the answer (JSON) under its key."""
        ...

    def insert_jobs(self, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None]) -> set[str]:
        """Insert pending jobs with history and message; return the ids of those that were inserted.

        A job is left out when another one is in flight for its document, unless it is forced.
        `expected` is by job id.
        """
        ...

    def jobs_in_flight(self, document_ids: Sequence[str], job_ids: Sequence[str] = ()) -> list[InFlight]:
        """Return the unforced jobs in flight for the documents, and the jobs `job_ids` whatever they are."""
        ...

    # Dependencies

    def lock_dependencies(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Lock the caller's jobs among `job_ids`, note that others depend on them, return their statuses."""
        ...

    def insert_dependencies(self, job_ids: Sequence[str], depends_on: Sequence[str]) -> None:
        """Let each of `job_ids` depend on all of `depends_on`."""
        ...

    def has_cycle(self, job_ids: Sequence[str]) -> bool:
        """Return whether one of the jobs depends on one of them, directly or through others."""
        ...

    def block_jobs(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs wait for dependencies."""
        ...

    def lock_dependents(self, job_ids: Sequence[str]) -> list[str]:
        """Lock and return the pending jobs that depend on `job_ids`, directly or through others."""
        ...

    def fail_dependents(self, job_ids: Sequence[str]) -> None:
        """Fail those of the pending jobs that depend on a failed one, and what depends on them."""
        ...

    def unblock_jobs(self, job_ids: Sequence[str]) -> None:
        """Clear the mark of those of the pending jobs whose dependencies are all done."""
        ...

    def unmet_dependencies(self, job_id: str) -> dict[str, JobStatus]:
        """Lock the dependencies of a job that are not done and return their statuses."""
        ...

    # Admission

    def usage(self, caller_id: str, tier: str) -> tuple[Usage, GlobalUsage, int]:
        """Return the caller's usage, that of all callers, and how many jobs of the caller are pending."""
        ...

    def pace(self) -> Pace:
        """Return how fast jobs went lately; may be a second old."""
        ...

    def queues_to_admit(
        self, callers: Sequence[str], done: Sequence[str]
    ) -> tuple[list[CallerQueue], GlobalUsage] | None:
        """Lock the callers, and others that wait for capacity, and return their queues; None without any.

        `done` are jobs that were done in this transaction, whose chunks count against daily quotas.
        """
        ...

    def start_jobs(self, job_ids: Sequence[str]) -> list[OutboxRow]:
        """Admit the pending jobs and return their messages in the same order, claimed by this process."""
        ...

    def mark_waiting_for_capacity(self, job_ids: Sequence[str]) -> None:
        """Note that the pending jobs would start with more capacity."""
        ...

    def clear_waiting_for_capacity(self, callers: Sequence[str]) -> None:
        """Clear that mark for the callers' pending jobs."""
        ...

    def waiting_callers(self) -> list[str]:
        """Return the callers with a pending job that no dependency blocks."""
        ...

    def positions(self, caller_id: str, job_ids: Sequence[str]) -> dict[str, tuple[int, str]]:
        """Return position (1 is next) and tier of those of the jobs that are in the caller's queue."""
        ...

    def blockers(self, job_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return, by job, the dependencies that are not done."""
        ...

    # Reads

    def job(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job; None when it is unknown or another caller's. So do the reads below."""
        ...

    def job_events(self, caller_id: str, job_id: str, seq: int) -> JobNews | None:
        """Return the caller's job with its events after `seq`."""
        ...

    def find_jobs(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        ...

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the caller's job with what a replay needs."""
        ...

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the transitions of the caller's job."""
        ...

    def count_batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Count the batch's jobs by status and error code; empty for an unknown batch."""
        ...

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job as decisions see it, without a lock."""
        ...

    # Job actions

    def lock_job(self, caller_id: str, job_id: str) -> LockedJob | None:
        """Lock and return the caller's job."""
        ...

    def cancel_job(self, job_id: str, from_status: JobStatus, error: JobError) -> None:
        """Fail the job with history, and park its messages that were not sent."""
        ...

    def has_message(self, job_id: str, message_id: str) -> bool:
        """Return whether the job has that message."""
        ...

    def published_since(self, document_id: str, at: datetime) -> bool:
        """Return whether the document is published and was written to after `at`."""
        ...

    def kept_payloads(self, job_id: str) -> dict[str, str]:
        """Return the newest payload of each stage."""
        ...

    def restart_job(self, row: OutboxRow, generation: int | None, *, blocked: bool) -> None:
        """Make the failed job pending, in the row's attempt, with the row as the message it starts with."""
        ...

    # Results

    def lock_jobs(self, job_ids: Sequence[str]) -> dict[str, JobState]:
        """Lock and return the jobs, whose ever they are."""
        ...

    def receive(self, message_ids: Sequence[str]) -> set[str]:
        """Note the messages as received; return those that were not received before."""
        ...

    def forget(self, message_ids: Sequence[str]) -> None:
        """Let the messages count as not received."""
        ...

    def save_results(self, updates: Sequence[JobUpdate], transitions: Sequence[Transition]) -> None:
        """Write the jobs' new columns, their transitions, and the messages that follow, claimed."""
        ...

    def save_retries(self, notes: Mapping[str, Retrying]) -> None:
        """Write until when a job's stage waits for its next try, by job id."""
        ...

    def redispatch(self, row: OutboxRow, generation: int) -> None:
        """Insert a copy of the current stage's message, claimed, with the generation that it publishes."""
        ...

    def lock_documents(self, targets: Sequence[Target]) -> dict[str, int | None]:
        """Lock the documents, so that none is published meanwhile; return their published generations."""
        ...

    def raise_fences(self, generations: Mapping[str, int]) -> None:
        """Refuse these generations, by document id, and all before them."""
        ...

    # Counts of the sweeper

    def last_counts(self, stages: Collection[str]) -> dict[str, Count]:
        """Lock and return the counts of the last tick, by stage."""
        ...

    def keep_counts(self, counts: Mapping[str, Count]) -> None:
        """Keep counts, by stage; an older one changes nothing."""
        ...


class JobStore(Protocol):
    """The only writer of job state. All calls raise TransientError(database_unavailable)."""

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work` in one transaction and return what it returns; nothing is written when it raises.

        It may run again after a lost connection, a deadlock or a unique violation, also when the first
        commit did happen: apart from `tx` it must have no effects, and make its ids beforehand.
        """
        ...

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads that need no transaction."""
        ...

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that no process has claimed."""
        ...

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        ...

    def mark_failed(self, ids: Sequence[str], error: str, *, away: bool = False) -> None:
        """Give claimed messages back after a failed try; one that failed too often is parked.

        `away`: nothing could be sent at all, which says nothing about these messages and does not count.
        """
        ...

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled; one that is kept already stays as it is."""
        ...
