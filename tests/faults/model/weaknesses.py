"""The product with one of its safeguards taken out, each in turn: the model must notice every one.

What is taken out is named as what then goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest

from indexmill.contracts.messages import StageResult
from indexmill.embedding.ports import DocumentVersion
from indexmill.orchestrator import dead_letters, results
from indexmill.orchestrator.changes import Ledger
from indexmill.orchestrator.ports import Change, JobState, OutboxRow
from indexmill.orchestrator.ports_sweep import Silent
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.rescue import Rescue
from indexmill.orchestrator.results import Decider
from indexmill.orchestrator.state_machine import Decision, advance
from indexmill.orchestrator.sweep import SweepJobs
from indexmill.testing.jobs import InMemoryJobs
from indexmill.testing.sweep_store import InMemorySweep
from indexmill.testing.vector_index import InMemoryVectorIndex

Weaken = Callable[[pytest.MonkeyPatch], None]


def any_attempt_counts(patch: pytest.MonkeyPatch) -> None:
    """The fence looks at the stage alone."""

    def blind(status: Any, attempt: int, *, stage: str, result_attempt: int, success: bool) -> Decision:
        return advance(status, attempt, stage=stage, result_attempt=attempt, success=success)

    patch.setattr(results, "advance", blind)


def copies_count(patch: pytest.MonkeyPatch) -> None:
    """No inbox."""
    take = Ledger.take

    def forgetful(self: Ledger, result: StageResult) -> Change:
        self.received.add(result.message_id)
        return take(self, result)

    patch.setattr(Ledger, "take", forgetful)


def messages_are_noted_before_they_are_sent(patch: pytest.MonkeyPatch) -> None:
    """A death in between loses the message."""
    send = Relay.send

    def hasty(self: Relay, rows: Sequence[OutboxRow]) -> None:
        self._mark_sent([row.id for row in rows])
        send(self, rows)

    patch.setattr(Relay, "send", hasty)


def what_is_left_behind_stays(patch: pytest.MonkeyPatch) -> None:
    """The sweeper sends nothing that its sender did not bring to its end."""
    patch.setattr(SweepJobs, "_leftovers", lambda *_: 0)


def what_is_lost_stays_lost(patch: pytest.MonkeyPatch) -> None:
    """The sweeper misses no message and hears no silence."""
    patch.setattr(Rescue, "lost", lambda *_: 0)
    patch.setattr(Rescue, "stuck", lambda *_: 0)


def what_is_lost_begins_a_new_attempt(patch: pytest.MonkeyPatch) -> None:
    """The sweeper sends messages of an attempt that there is not."""
    send_again = InMemorySweep.send_again

    def renumbered(self: InMemorySweep, jobs: Sequence[Silent]) -> int:
        for job in jobs:
            row = self.jobs.outbox[job.message_id or ""]
            row["payload"] = row["payload"].replace('"attempt":', '"attempt":1')
            row["attempt"] += 10
        return send_again(self, jobs)

    patch.setattr(InMemorySweep, "send_again", renumbered)


def the_ended_publish(patch: pytest.MonkeyPatch) -> None:
    """The index publishes what was fenced out."""

    def newer(self: InMemoryVectorIndex, version: DocumentVersion) -> bool:
        document = self._document(version)
        document.corpus_key = version.target.corpus_key
        return document.published is None or document.published < version.generation

    patch.setattr(InMemoryVectorIndex, "_may_publish", newer)


def the_older_publish(patch: pytest.MonkeyPatch) -> None:
    """The index lets an older generation replace a newer one."""

    def allowed(self: InMemoryVectorIndex, version: DocumentVersion) -> bool:
        document = self._document(version)
        document.corpus_key = version.target.corpus_key
        return document.min_generation <= version.generation

    patch.setattr(InMemoryVectorIndex, "_may_publish", allowed)


def verbs_fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """Cancel and retry leave what was issued free to publish."""
    raise_fences, apply = InMemoryJobs.raise_fences, results.apply_results

    def applied(*given: Any) -> list[Change]:
        with pytest.MonkeyPatch.context() as within:
            within.setattr(InMemoryJobs, "raise_fences", raise_fences)
            return apply(*given)

    patch.setattr(InMemoryJobs, "raise_fences", lambda *_: None)
    patch.setattr(results, "apply_results", applied)


def failures_fence_nothing(patch: pytest.MonkeyPatch) -> None:
    """A failed job's message may still publish."""
    patch.setattr(Ledger, "fences", lambda _: {})


def the_fenced_are_done(patch: pytest.MonkeyPatch) -> None:
    """Who was fenced out by another job's end counts as published."""
    patch.setattr(results, "_was_fenced", lambda _: False)


def the_visible_fail(patch: pytest.MonkeyPatch) -> None:
    """A worker that published and then died fails its job."""
    failure = Decider._failure

    def strict(self: Decider, decision: Decision, state: JobState, result: StageResult) -> Change:
        return failure(self, decision, replace(state, visible=False), result)

    patch.setattr(Decider, "_failure", strict)


def the_dead_are_not_told_of(patch: pytest.MonkeyPatch) -> None:
    """A dead letter is kept, and that is all."""
    patch.setattr(dead_letters, "_failure", lambda *_: None)


WEAKNESSES: Final[tuple[Weaken, ...]] = (
    any_attempt_counts,
    copies_count,
    messages_are_noted_before_they_are_sent,
    what_is_left_behind_stays,
    what_is_lost_stays_lost,
    what_is_lost_begins_a_new_attempt,
    the_ended_publish,
    the_older_publish,
    verbs_fence_nothing,
    failures_fence_nothing,
    the_fenced_are_done,
    the_visible_fail,
    the_dead_are_not_told_of,
)
