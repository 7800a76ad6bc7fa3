"""Count of lost messages: every job that waits for a stage must have a message somewhere.

A job's message moves from the outbox to the stage's queue, from there (as a result) to the callback queue,
and when that is applied the job has left the stage. It is always in the next place before it leaves the one
before, so it is enough to look at the places in that order to never miss one that exists: first the queue,
then the callback queue, then, in one look, the jobs and the outbox. What moved on between two looks is
counted twice, which can hide a loss for a tick but never invents one. Two moves would break the rule, and so:

* A job that came to the stage, and whose message was sent, after we looked at the queue: a message that was
  sent less than SETTLE ago counts as still in the outbox. On AWS that is also how long the approximate
  number of messages may lag.
* A message that is handed from a queue to its dead letters: those count as part of the queue.

What is counted is thus the least number that must be missing. It is less than the truth by the messages
without a job (standalone work), by copies, and by those that are just being finished. Two ticks must agree,
since an approximate number may be wrong once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.sweep import Count, SweepStore
from indexmill.platform.aws.sqs_queue import SqsBacklog

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
