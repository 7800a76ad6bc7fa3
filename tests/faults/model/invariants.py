"""Invariants: of end states, of histories, and of each result and publish while an example runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from indexmill.contracts.job import Job, JobStatus
from indexmill.contracts.messages import EmbedResult, StageResult
from indexmill.embedding.ports import DocumentVersion, Hit, PublishOutcome, VectorIndex
from indexmill.orchestrator.results.apply import Recorder
from indexmill.orchestrator.results.decide import Decider
from indexmill.orchestrator.store.jobs import DeadLetter, JobStore
from indexmill.orchestrator.store.results import Change, Verdict
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.platform.observability import Observability
from tests.support.jobs import state_of

STATES: Final = ("pending", "scraping", "chunking", "embedding", "done", "failed")
_EXPECTED: Final = frozenset(("poison_message", "canceled"))
"""No page is broken: a job fails only after repeated crashes of its worker, or when canceled."""

History = list[tuple[str, int, str | None, str]]


def violated_end_states(
    jobs: Sequence[Job],
    issued: Mapping[str, int | None],
    texts: Mapping[str, Sequence[str]],
    publishes: Sequence[Publish],
    search: Callable[[str], Sequence[Hit]],
) -> list[str]:
    """Return the violations among end states; `issued` is each job's newest generation.

    `texts` are all sentences that a page ever had, by URL.
    """
    violations = [
        f"{job.job_id} ended with {job.error}"
        for job in jobs
        if job.status != "done" and (job.error is None or job.error.code not in _EXPECTED)
    ]
    done = {job.job_id: job.url for job in jobs if job.status == "done"}
    for url in sorted({job.url for job in jobs}):
        visible = [each for each in publishes if each.url == url and each.visible]
        newest = max(visible, key=lambda each: each.generation, default=None)
        if newest is not None and newest.job_id not in done:
            violations.append(f"{url} shows what {newest.job_id} published, which is not done")
        violations += [
            f"{job_id} is done, and search sees neither what it published nor anything newer"
            for job_id in (job_id for job_id, of in done.items() if of == url)
            if newest is None or newest.generation < (issued[job_id] or 0)
        ]
        expected = [newest.text] if newest is not None and url in done.values() else []
        violations += _wrong_search_results(url, expected, texts[url], search)
    return violations


def _wrong_search_results(
    url: str, expected: list[str], texts: Sequence[str], search: Callable[[str], Sequence[Hit]]
) -> list[str]:
    """Return the violations in search results: a sentence finds what the newest job published, once."""
    violations = []
    for text in texts:
        hits = search(text)
        own = [hit.text for hit in hits if hit.source_url == url]
        first = not expected or text not in expected[0] or hits[0].source_url == url
        if own != expected or not first:
            violations.append(f"{text!r} of {url} finds {own}, expected {expected}")
    return violations


def illegal_transitions(history: History) -> list[str]:
    """Return illegal transitions: not from the state before, or repeated."""
    at: dict[str, str] = {}
    attempts: dict[str, int] = {}
    violations = []
    for job_id, attempt, before, after in history:
        again = attempt == attempts.get(job_id, 1) + 1 and before == "failed"
        forward = attempt == attempts.get(job_id, 1) and (
            before is None or after == "failed" or STATES.index(after) > STATES.index(before)
        )
        if before != at.get(job_id) or not (forward or again):
            violations.append(f"{job_id}: {before} -> {after} in attempt {attempt}, after {at.get(job_id)}")
        at[job_id], attempts[job_id] = after, attempt
    counts = Counter((job_id, attempt, after) for job_id, attempt, _, after in history)
    return violations + [f"twice: {step}" for step, count in counts.items() if count > 1]


_EFFECTIVE = (Verdict.ADVANCE, Verdict.FAIL, Verdict.REDISPATCH, Verdict.WAIT)


@dataclass(frozen=True)
class Publish:
    """One publish and its outcome."""

    url: str
    job_id: str
    generation: int
    text: str
    became: PublishOutcome

    @property
    def visible(self) -> bool:
        """Return whether search returns it from then on."""
        return self.became is PublishOutcome.PUBLISHED


@dataclass
class Observations:
    """Outcomes and violations of one example; `reached` counts over the whole run."""

    reached: Counter[str]
    publishes: list[Publish] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    effects: Counter[str] = field(default_factory=Counter)
    """Number of effects of each result, by message id."""

    def count(self, what: str, times: int = 1) -> None:
        """Count an outcome."""
        if times:
            self.reached[what] += times


class _Observed:
    """Transparent proxy."""

    def __init__(self, inner: Any, observations: Observations) -> None:
        """`observations` collects outcomes."""
        self._inner, self._observations = inner, observations

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the inner object."""
        return getattr(self._inner, name)


class ObservedStore(_Observed):
    """Job store that counts dead letters and swept messages."""

    _inner: JobStore

    def claim(self, limit: int) -> list[OutboxRow]:
        """Claim, and count rows that their process did not send."""
        rows = self._inner.claim(limit)
        for row in rows:
            self._observations.count(f"swept: {row.stage}")
        return rows

    def record_dead_letter(self, letter: DeadLetter) -> bool:
        """Record the dead letter, and count its cause."""
        new = self._inner.record_dead_letter(letter)
        self._observations.count(f"dead: {letter.cause}")
        return new


class ObservedRecorder:
    """Recorder of results that counts verdicts and checks that each result has one effect."""

    def __init__(
        self, store: JobStore, decide: Decider, observations: Observations, observability: Observability
    ) -> None:
        """`observations` collects outcomes."""
        self.store, self.observability = store, observability
        self._observations = observations
        self._states: dict[str, JobState | None] = {}

        states = self._states

        class Decided(Decider):
            """The decider; keeps the state that each result met."""

            def __call__(self, state: JobState | None, result: StageResult) -> Change:
                states[result.message_id] = state
                return Decider.__call__(self, state, result)

        decided = Decided(decide.clock, decide.make_id, decide.prices)
        self._inner = Recorder(store, decided, observability)

    def __call__(self, results: Sequence[StageResult]) -> list[OutboxRow]:
        """Apply results; return the messages that follow."""
        return [row for change in self.changes(results) for row in change.outbox]

    def changes(self, results: Sequence[StageResult]) -> list[Change]:
        """Apply, and count each result's outcome."""
        self._states.clear()
        changes = self._inner.changes(results)
        states, first = dict(self._states), set[str]()
        for result, change in zip(results, changes, strict=True):
            copy = result.message_id not in states or result.message_id in first
            first.add(result.message_id)
            self._observations.count("copy" if copy else _outcome(states[result.message_id], result, change))
            self._count(states.get(result.message_id), result, change)
        return changes

    def _count(self, state: JobState | None, result: StageResult, change: Change) -> None:
        observations, verdict = self._observations, change.verdict
        if verdict is Verdict.EARLY:
            observations.violations.append(
                f"{result.message_id} was applied before its job's state: {change}"
            )
        if verdict not in _EFFECTIVE:
            return
        observations.effects[result.message_id] += 1
        if observations.effects[result.message_id] > 1:
            observations.violations.append(f"{result.message_id} had an effect twice")
        if state is None or state.attempt != result.attempt:
            observations.violations.append(
                f"{result.message_id} of attempt {result.attempt} had an effect on {state}"
            )
        if change.error is not None:
            by = "dead letter" if result.message_id.endswith(":dead") else "stage"
            observations.count(f"failed: {change.error.code} by {by}")
        if isinstance(result, EmbedResult) and result.embedded is not None and verdict is Verdict.ADVANCE:
            observations.count("done: superseded", result.embedded.superseded)
            observations.count("done: unchanged", result.embedded.published and not result.embedded.embedded)


def _outcome(state: JobState | None, result: StageResult, change: Change) -> str:
    verdict = change.verdict
    if state is None:
        return "unknown job"
    if verdict is Verdict.LATE:
        if result.attempt < state.attempt:
            return "late: an earlier attempt"
        return "late: the job has ended" if state.status.terminal else "late: an earlier stage"
    if verdict is Verdict.ADVANCE and result.status == "failed":
        return "done: published, then failed"
    return verdict.value


class ObservedIndex(_Observed):
    """Index that counts publishes and checks them against their jobs."""

    _inner: VectorIndex

    def __init__(self, inner: VectorIndex, store: JobStore, observations: Observations) -> None:
        """`store` knows the jobs."""
        super().__init__(inner, observations)
        self._store = store

    def publish(self, versions: Sequence[DocumentVersion]) -> list[PublishOutcome]:
        """Publish, and count each version's outcome."""
        seen = self._inner.publish(versions)
        for version, one in zip(versions, seen, strict=True):
            self._observations.count(f"publish: {one.value}")
            text = "\n".join(chunk.text for chunk in version.chunks)
            job_id = version.job_id or ""
            new = Publish(version.target.url, job_id, version.generation, text, one)
            if new.visible:
                self._check(new, state_of(self._store, job_id))
            self._observations.publishes.append(new)
        return seen

    def _check(self, new: Publish, state: JobState | None) -> None:
        """Only the newest message of a job that has not failed may show something, and nothing older."""
        own = state is not None and state.issued == new.generation
        if not own or state is None or state.status not in (JobStatus.EMBEDDING, JobStatus.DONE):
            self._observations.violations.append(f"{new} is published for {state}")
        before = [
            each.generation for each in self._observations.publishes if each.url == new.url and each.visible
        ]
        if max(before, default=0) > new.generation:
            self._observations.violations.append(f"{new} is published over {max(before)}")
