"""What the orders of a run reached, counted; and what must not happen on the way, not even for a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from indexmill.contracts.job import JobStatus
from indexmill.contracts.messages import StageResult
from indexmill.embedding.ports import DocumentVersion, PublishOutcome, VectorIndex
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports import Change, DeadLetter, JobState, OutboxRow
from indexmill.orchestrator.results import Decider, Recorder
from indexmill.orchestrator.state_machine import Verdict
from indexmill.platform.observability import Observability
from tests.support.jobs import state_of

_EFFECTIVE = (Verdict.ADVANCE, Verdict.FAIL, Verdict.AGAIN, Verdict.WAIT)


@dataclass(frozen=True)
class Shown:
    """What became of one publish."""

    url: str
    job_id: str
    generation: int
    text: str
    became: PublishOutcome

    @property
    def visible(self) -> bool:
        """Whether search sees it from then on."""
        return self.became is PublishOutcome.PUBLISHED


@dataclass
class Watch:
    """Notes of one example; `reached` is the whole run's."""

    reached: Counter[str]
    shown: list[Shown] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    """How often each report had an effect, by its message's id."""

    def note(self, what: str, times: int = 1) -> None:
        """Count an outcome."""
        if times:
            self.reached[what] += times


class _Watched:
    """Passes everything on."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        """`watch` gets what is seen."""
        self._inner, self._watch = inner, watch

    def __getattr__(self, name: str) -> Any:
        """Return what is there."""
        return getattr(self._inner, name)


class WatchedStore(_Watched):
    """A job store whose dead letters and swept messages are counted."""

    _inner: JobStore

    def claim(self, limit: int) -> list[OutboxRow]:
        """Claim, and note what nobody had brought to its end."""
        rows = self._inner.claim(limit)
        for row in rows:
            self._watch.note(f"swept: {row.stage}")
        return rows

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep the letter, and note what it was."""
        self._inner.record_dead_letter(letter)
        self._watch.note(f"dead: {letter.cause}")


class WatchedRecorder:
    """The recorder of results, whose verdicts are counted."""

    def __init__(self, store: JobStore, decide: Decider, watch: Watch, observability: Observability) -> None:
        """`watch` gets the verdicts."""
        self.store, self.observability = store, observability
        self._watch = watch
        self._states: dict[str, JobState | None] = {}

        def decided(state: JobState | None, result: StageResult) -> Change:
            self._states[result.message_id] = state
            return decide(state, result)

        self._inner = Recorder(store, decided, observability)

    def __call__(self, results: Sequence[StageResult]) -> list[OutboxRow]:
        """Apply, and return the messages that follow."""
        return [row for change in self.changes(results) for row in change.outbox]

    def changes(self, results: Sequence[StageResult]) -> list[Change]:
        """Apply, and note what became of each report."""
        self._states.clear()
        changes = self._inner.changes(results)
        states, first = dict(self._states), set[str]()
        for result, change in zip(results, changes, strict=True):
            copy = result.message_id not in states or result.message_id in first
            first.add(result.message_id)
            self._watch.note("copy" if copy else _outcome(states[result.message_id], result, change))
            self._count(states.get(result.message_id), result, change)
        return changes

    def _count(self, state: JobState | None, result: StageResult, change: Change) -> None:
        watch, verdict = self._watch, change.decision.verdict
        if verdict is Verdict.EARLY:
            watch.wrong.append(f"{result.message_id} was told before its job's state: {change}")
        if verdict not in _EFFECTIVE:
            return
        watch.counted[result.message_id] += 1
        if watch.counted[result.message_id] > 1:
            watch.wrong.append(f"{result.message_id} counted twice")
        if state is None or state.attempt != result.attempt:
            watch.wrong.append(f"{result.message_id} of attempt {result.attempt} counted for {state}")
        if change.error is not None:
            by = "dead letter" if result.message_id.endswith(":dead") else "stage"
            watch.note(f"failed: {change.error.code} by {by}")
        if result.embedded is not None and verdict is Verdict.ADVANCE:
            watch.note("done: superseded", result.embedded.superseded)
            watch.note("done: unchanged", result.embedded.published and not result.embedded.embedded)


def _outcome(state: JobState | None, result: StageResult, change: Change) -> str:
    verdict = change.decision.verdict
    if state is None:
        return "unknown job"
    if verdict is Verdict.LATE:
        if result.attempt < state.attempt:
            return "late: an earlier attempt"
        return "late: the job has ended" if state.status.terminal else "late: an earlier stage"
    if verdict is Verdict.ADVANCE and result.status == "failed":
        return "done: published, then failed"
    return verdict.value


class WatchedIndex(_Watched):
    """An index whose publishes are counted, and held against their jobs."""

    _inner: VectorIndex

    def __init__(self, inner: VectorIndex, store: JobStore, watch: Watch) -> None:
        """`store` knows the jobs."""
        super().__init__(inner, watch)
        self._store = store

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Publish, and note what became of each version."""
        seen = self._inner.publish(versions)
        for version, one in zip(versions, seen, strict=True):
            self._watch.note(f"publish: {one.value}")
            text = "\n".join(chunk.text for chunk in version.chunks)
            job_id = version.job_id or ""
            new = Shown(version.target.url, job_id, version.generation, text, one)
            if new.visible:
                self._check(new, state_of(self._store, job_id))
            self._watch.shown.append(new)
        return seen

    def _check(self, new: Shown, state: JobState | None) -> None:
        """Only the newest message of a job that has not failed may show something, and nothing older."""
        own = state is not None and state.issued == new.generation
        if not own or state is None or state.status not in (JobStatus.EMBEDDING, JobStatus.DONE):
            self._watch.wrong.append(f"{new} is published for {state}")
        before = [each.generation for each in self._watch.shown if each.url == new.url and each.visible]
        if max(before, default=0) > new.generation:
            self._watch.wrong.append(f"{new} is published over {max(before)}")
