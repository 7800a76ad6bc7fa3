"""Lost messages: found by counting or by half an hour without an event, and redispatched.

Every job that waits for a stage must have a message somewhere. A job's message moves from the outbox to the
stage's queue, from there (as a result) to the callback queue, and when that is applied the job has left the
stage. It is always in the next place before it leaves the one before, so it is enough to look at the places
in that order to never miss one that exists: first the queue, then the callback queue, then, in one look, the
jobs and the outbox. What moved on between two looks is counted twice, which can hide a loss for a tick but
never invents one. Two moves would break the rule, and so:

* A job that came to the stage, and whose message was sent, after we looked at the queue: a message that was
  sent less than SETTLE ago counts as still in the outbox. On AWS that is also how long the approximate
  number of messages may lag.
* A message that is handed from a queue to its dead letters: those count as part of the queue.

What is counted is thus the least number that must be missing. It is less than the truth by the messages
without a job (standalone work), by copies, and by those that are just being finished. Two ticks must agree,
since an approximate number may be wrong once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.messages import StageFailure, StageResult, stage_result
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.results.apply import Recorder
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.rows import MOST_RESCUES
from indexmill.orchestrator.store.sweep import Count, StaleJob, SweepStore
from indexmill.platform.aws.sqs_queue import SqsBacklog
from indexmill.platform.observability import Observability

_LONGEST_WAIT: Final = timedelta(hours=12)
"""A queue hides a message no longer than that."""
_AT_ONCE: Final = 5_000
_OVERTAKEN: Final = ", passed"
"""Suffix of a stage's name in `sweep_state`: the count of its overtaken jobs."""
SETTLE: Final = timedelta(seconds=60)
_APART: Final = timedelta(seconds=30)
"""Two ticks that are closer were started twice for the same minute."""
_FORGOTTEN: Final = timedelta(minutes=5)


def agreed(before: Count | None, now: Count) -> int | None:
    """Return how many messages are missing by both counts; None when `now` says nothing new."""
    if before is None or now.at - before.at > _FORGOTTEN:
        return 0
    if now.at - before.at < _APART:
        return None
    return min(before.missing, now.missing)


def agree(last: Mapping[str, Count], now: Mapping[str, Count]) -> dict[str, int]:
    """Return what both counts miss, by stage; one of which `now` says nothing new is left out."""
    found = {stage: agreed(last.get(stage), count) for stage, count in now.items()}
    return {stage: number for stage, number in found.items() if number is not None}


def confirm_missing(tx: JobsTx, counts: Mapping[str, Count]) -> dict[str, int]:
    """Keep the counts (by stage) for the next tick and return what two ticks in a row agree on.

    A stage that was counted a moment ago is left out: of two sweepers at once only one gets an answer.
    """
    found = agree(tx.last_counts(counts), counts)
    tx.keep_counts({stage: counts[stage] for stage in found})
    return found


@dataclass(frozen=True, slots=True)
class Tally:
    """One look at queues and store."""

    at: datetime
    """When it began, by the database's clock."""
    waiting: Mapping[str, int]
    """Messages in each stage's queue."""
    results: int
    """Messages in the callback queue."""
    missing: Mapping[str, int]
    """The least number of lost messages, by stage."""

    @property
    def settled(self) -> datetime:
        """Return the time before which a sent message is certainly counted in its queue."""
        return self.at - SETTLE

    def empty(self, stage: str) -> bool:
        """Return whether the stage's queue is empty."""
        return self.waiting[stage] == 0


@dataclass(frozen=True, slots=True)
class CountMessages:
    """Counts the messages of all stages."""

    store: SweepStore
    queues: Mapping[str, SqsBacklog]
    """By stage."""
    callbacks: SqsBacklog

    def __call__(self) -> Tally:
        """Count once. Raises TransientError."""
        at = self.store.now()
        waiting = {stage.name: self.queues[stage.name].messages() for stage in STAGES}
        results = self.callbacks.messages()
        unaccounted = self.store.count_unaccounted(at - SETTLE)
        missing = {}
        for stage in STAGES:
            found = waiting[stage.name] + results
            missing[stage.name] = max(0, unaccounted.get(stage.name, 0) - found)
        return Tally(at, waiting, results, missing)


@dataclass(frozen=True, slots=True)
class Rescue:
    """Sends kept messages again: same attempt, same message id, so that a copy stops at the fence."""

    store: SweepStore
    record: Recorder
    relay: Relay
    observability: Observability

    def lost(self, tally: Tally) -> int:
        """Redispatch as many messages as two counts agree are missing; return how many.

        Which jobs lost theirs is not known: those without an event for the longest time are the likeliest.
        While the queue is not empty that is a guess, so a job must also have been overtaken by later messages
        of its caller. At most one message is redispatched for each that is missing.
        """
        counts = {stage: Count(missing, tally.at) for stage, missing in tally.missing.items()}
        agreed = self.record.store.transaction(lambda tx: confirm_missing(tx, counts))
        if not agreed:
            return 0
        confirmed = {stage: number for stage, number in agreed.items() if number}
        again = sum(self._send_lost(stage, number, tally) for stage, number in confirmed.items())
        details = {stage: {"missing": number} for stage, number in confirmed.items()}
        self.store.incidents("messages_missing", details)
        return again

    def overtaken(self, tally: Tally) -> int:
        """Report the jobs that two ticks agree were overtaken; return how many.

        With thousands of messages in flight, those that move between queues hide a small loss from the count,
        but a lost message is overtaken. That alone redispatches nothing, since a worker that died may still
        have the message: the count finds it when the backlog is short, or half an hour without an event.
        """
        found = self.store.count_overtaken(tally.settled)
        counts = {f"{stage.name}{_OVERTAKEN}": Count(found.get(stage.name, 0), tally.at) for stage in STAGES}
        agreed = self.record.store.transaction(lambda tx: confirm_missing(tx, counts))
        if not agreed:
            return 0
        confirmed = {stage.removesuffix(_OVERTAKEN): number for stage, number in agreed.items() if number}
        for stage, number in confirmed.items():
            self.observability.log.warning("jobs.overtaken", extra={"stage": stage, "jobs": number})
            self.observability.count("jobs_passed", number, stage=stage)
        self.store.incidents("jobs_passed", {stage: {"jobs": number} for stage, number in confirmed.items()})
        return sum(confirmed.values())

    def stuck(self, tally: Tally, interrupted: Sequence[str] = ()) -> int:
        """Redispatch messages of jobs without an event for half an hour; `interrupted` stages excepted."""
        stages = [stage.name for stage in STAGES if stage.name not in interrupted]
        empty = [name for name in stages if tally.empty(name) and tally.results == 0]
        busy = [name for name in stages if name not in empty]
        return self._handle(self.store.stuck(empty, busy, _AT_ONCE), tally, "silent")

    def _send_lost(self, stage: str, confirmed: int, tally: Tally) -> int:
        self.observability.log.error("messages.missing", extra={"stage": stage, "missing": confirmed})
        self.observability.count("messages_missing", confirmed, stage=stage)
        found = self.store.find_stale(
            stage, min(confirmed, _AT_ONCE), tally.settled, overtaken=not tally.empty(stage)
        )
        return self._handle(found, tally, "lost")

    def _handle(self, jobs: Sequence[StaleJob], tally: Tally, reason: str) -> int:
        failing = [job for job in jobs if _must_fail(job, tally)]
        again = [job for job in jobs if job.message_id is not None and job.rescues < MOST_RESCUES]
        if failing:
            self.relay.send(self.record([_stuck_result(job) for job in failing]))
        for job in again:
            self._report(job, reason)
        return self.store.send_again(again) if again else 0

    def _report(self, job: StaleJob, reason: str) -> None:
        fields = {
            "job_id": job.job_id,
            "caller_id": job.caller_id,
            "stage": job.stage,
            "url": job.url,
            "updated_at": job.updated_at.isoformat(),
            "stuck_for_s": round(job.stuck_for.total_seconds()),
        }
        self.observability.log.warning("job.rescued", extra={**fields, "reason": reason})
        self.observability.count("jobs_rescued_total", stage=job.stage)


def _must_fail(job: StaleJob, tally: Tally) -> bool:
    """Return whether the job must fail: no message to redispatch, or too many were and none is in flight."""
    if job.message_id is None:
        return True
    idle = tally.empty(job.stage) and tally.results == 0
    return job.rescues >= MOST_RESCUES and (job.parked or idle or job.stuck_for > _LONGEST_WAIT)


def _stuck_result(job: StaleJob) -> StageResult:
    failure = StageFailure(
        code=ErrorCode.STUCK_TIMEOUT,
        message=f"{job.stage.capitalize()} gave no sign of life and was started again {job.rescues} times",
        tries=job.rescues + 1,
    )
    return stage_result(
        message_id=f"{job.message_id or job.job_id}:{job.attempt}:stuck",
        job_id=job.job_id,
        attempt=job.attempt,
        stage=job.stage,
        status="failed",
        failure=failure,
    )
