"""Mutations: each removes one safeguard of the product, and the model must find a violation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from indexmill.contracts.messages import StageResult
from indexmill.embedding.ports import DocumentVersion
from indexmill.orchestrator.outbox.relay import Relay
from indexmill.orchestrator.results import apply, dead_letters
from indexmill.orchestrator.results.apply import ResultBatch
from indexmill.orchestrator.results.decide import Decider, advance
from indexmill.orchestrator.stages import embedding
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.orchestrator.store.sweep import StaleJob
from indexmill.orchestrator.sweeper.rescue import Rescue
from indexmill.orchestrator.sweeper.sweep import SweepJobs
from tests.twins.jobs import InMemoryJobs
from tests.twins.sweep_store import InMemorySweep
from tests.twins.vector_index import InMemoryVectorIndex

Mutate = Callable[[pytest.MonkeyPatch], None]


def accept_results_of_any_attempt(patch: pytest.MonkeyPatch) -> None:
    """Compare a result's stage with the job's, but not its attempt."""

    def blind(status: Any, attempt: int, *, stage: str, result_attempt: int, success: bool) -> Change:
        return advance(status, attempt, stage=stage, result_attempt=attempt, success=success)

    patch.setattr(apply, "advance", blind)


def apply_duplicates(patch: pytest.MonkeyPatch) -> None:
    """Apply results without the inbox."""
    take = ResultBatch.take

    def forgetful(self: ResultBatch, result: StageResult) -> Change:
        self.received.add(result.message_id)
        return take(self, result)

    patch.setattr(ResultBatch, "take", forgetful)


def mark_sent_before_sending(patch: pytest.MonkeyPatch) -> None:
    """Mark rows as sent first: a crash in between loses the message."""
    send = Relay.send

    def hasty(self: Relay, rows: Sequence[OutboxRow]) -> None:
        self._mark_sent([row.id for row in rows])
        send(self, rows)

    patch.setattr(Relay, "send", hasty)


def never_mark_sent(patch: pytest.MonkeyPatch) -> None:
    """Leave rows unsent: every sweep sends them again, a loop that needs no new jobs."""
    patch.setattr(Relay, "_mark_sent", lambda *_: None)


def sweep_no_unsent_rows(patch: pytest.MonkeyPatch) -> None:
    """Leave unsent rows of crashed processes in the outbox."""
    patch.setattr(SweepJobs, "_unsent", lambda *_: 0)


def never_send_again(patch: pytest.MonkeyPatch) -> None:
    """Send no lost message again."""
    patch.setattr(Rescue, "lost", lambda *_: 0)
    patch.setattr(Rescue, "stuck", lambda *_: 0)


def send_again_with_a_new_attempt(patch: pytest.MonkeyPatch) -> None:
    """Send lost messages again with an attempt that the job does not have."""
    send_again = InMemorySweep.send_again

    def renumbered(self: InMemorySweep, jobs: Sequence[StaleJob]) -> int:
        for job in jobs:
            row = self.jobs.outbox[job.message_id or ""]
            row["payload"] = row["payload"].replace('"attempt":', '"attempt":1')
            row["attempt"] += 10
        return send_again(self, jobs)

    patch.setattr(InMemorySweep, "send_again", renumbered)


def publish_after_the_end(patch: pytest.MonkeyPatch) -> None:
    """Publish generations that are fenced."""

    def newer(self: InMemoryVectorIndex, version: DocumentVersion) -> bool:
        document = self._document(version)
        document.corpus_key = version.target.corpus_key
        return document.published is None or document.published < version.generation

    patch.setattr(InMemoryVectorIndex, "_may_publish", newer)


def publish_an_older_generation(patch: pytest.MonkeyPatch) -> None:
    """Let an older generation replace a newer one in the index."""

    def allowed(self: InMemoryVectorIndex, version: DocumentVersion) -> bool:
        document = self._document(version)
        document.corpus_key = version.target.corpus_key
        return document.min_generation <= version.generation

    patch.setattr(InMemoryVectorIndex, "_may_publish", allowed)


def actions_fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """Cancel and retry without fencing the generations issued before."""
    raise_fences, apply_results = InMemoryJobs.raise_fences, apply.apply_results

    def applied(*given: Any) -> list[Change]:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(InMemoryJobs, "raise_fences", raise_fences)
            return apply_results(*given)

    patch.setattr(InMemoryJobs, "raise_fences", lambda *_: None)
    patch.setattr(apply, "apply_results", applied)


def failures_fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """Fail jobs without fencing their generations."""
    patch.setattr(ResultBatch, "fences", lambda _: {})


def count_fenced_as_published(patch: pytest.MonkeyPatch) -> None:
    """Count a generation that another job's end fenced as published."""
    facts = embedding.facts
    patch.setattr(embedding, "facts", lambda *given: replace(facts(*given), fenced=False))


def fail_although_published(patch: pytest.MonkeyPatch) -> None:
    """Fail a job although its worker had published before it crashed."""
    failure = Decider._failure

    def strict(self: Decider, state: JobState, result: StageResult) -> Change:
        return failure(self, replace(state, visible=False), result)

    patch.setattr(Decider, "_failure", strict)


def dead_letters_fail_no_job(patch: pytest.MonkeyPatch) -> None:
    """Record dead letters without failing their jobs."""
    patch.setattr(dead_letters, "_failure", lambda *_: None)


def forget_earlier_starts(patch: pytest.MonkeyPatch) -> None:
    """Count a job's last start alone: cancel and retry start without end."""
    restart_job = InMemoryJobs.restart_job

    def forgetful(self: InMemoryJobs, row: OutboxRow, *given: Any, **more: Any) -> None:
        self.starts = {key: each for key, each in self.starts.items() if key[0] != row.job_id}
        restart_job(self, row, *given, **more)

    patch.setattr(InMemoryJobs, "restart_job", forgetful)


MUTATIONS: Final[tuple[Mutate, ...]] = (
    accept_results_of_any_attempt,
    apply_duplicates,
    mark_sent_before_sending,
    never_mark_sent,
    sweep_no_unsent_rows,
    never_send_again,
    send_again_with_a_new_attempt,
    publish_after_the_end,
    publish_an_older_generation,
    actions_fence_nothing,
    failures_fence_nothing,
    count_fenced_as_published,
    fail_although_published,
    dead_letters_fail_no_job,
    forget_earlier_starts,
)
