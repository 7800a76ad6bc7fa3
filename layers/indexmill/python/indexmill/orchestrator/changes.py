"""Collect what a batch of results does to its jobs before anything is written; shared by every store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.messages import Retrying, StageResult, Stored
from indexmill.orchestrator.ports import Again, Change, Decide, JobState, OutboxRow
from indexmill.orchestrator.state_machine import Decision, Verdict


@dataclass(frozen=True, slots=True)
class Move:
    """One transition, for the history."""

    job_id: str
    attempt: int
    from_status: JobStatus
    to_status: JobStatus
    cause: str
    change: Change
    result: StageResult


@dataclass(slots=True)
class Final:
    """A job's columns after the batch; None and {} leave what is there."""

    job_id: str
    status: JobStatus
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    generation: int | None = None
    stored: Stored | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def take(self, to: JobStatus, change: Change) -> None:
        """Add what one more change tells."""
        self.status, self.error = to, change.error
        self.title = change.title or self.title
        self.chunk_count = change.chunk_count if change.chunk_count is not None else self.chunk_count
        self.generation = change.generation if change.generation is not None else self.generation
        self.stored = change.stored or self.stored
        self.facts = {**self.facts, **change.facts}


@dataclass(slots=True)
class Ledger:
    """Decides results in order, each on the state that the one before left."""

    states: dict[str, JobState]
    """Locked jobs by id."""
    fresh: set[str]
    """Message ids that were never counted before."""
    decide: Decide
    moves: list[Move] = field(default_factory=list)
    finals: dict[str, Final] = field(default_factory=dict)
    notes: dict[str, Retrying] = field(default_factory=dict)
    """Until when a job's stage waits, by job id."""
    again: dict[str, Again] = field(default_factory=dict)
    """Stages whose message goes out once more, by job id."""
    early: list[str] = field(default_factory=list)
    """Message ids that must not count yet."""

    def take(self, result: StageResult) -> Change:
        """Decide about one result and note what follows."""
        state = self.states.get(result.job_id or "")
        if result.message_id not in self.fresh:
            return Change(Decision(Verdict.LATE), status=state.status if state else None)
        self.fresh.discard(result.message_id)
        change = self.decide(state, result)
        if change.decision.verdict is Verdict.EARLY:
            self.early.append(result.message_id)
        elif state is not None and change.again is not None:
            self.again[state.job_id] = change.again
        elif state is not None and change.retrying is not None:
            self.notes[state.job_id] = change.retrying
        elif state is not None and change.decision.to is not None:
            self.notes.pop(state.job_id, None)
            self.again.pop(state.job_id, None)
            self._move(state, change.decision.to, result, change)
        return change

    def callers_with_room(self) -> list[str]:
        """Return the callers of whom a job ended: another one of theirs may start."""
        return sorted({self.states[job_id].target.caller_id for job_id in self.ended()})

    def done(self) -> list[str]:
        """Return the jobs that are done now."""
        return [final.job_id for final in self.finals.values() if final.status is JobStatus.DONE]

    def ended(self) -> list[str]:
        """Return the jobs that are done or failed now."""
        return [final.job_id for final in self.finals.values() if final.status.terminal]

    def fences(self) -> dict[str, int]:
        """Return, by document id, the generation up to which nothing may be published any more."""
        found: dict[str, int] = {}
        for final in self.finals.values():
            state = self.states[final.job_id]
            if final.status is JobStatus.FAILED and state.issued is not None:
                document = state.target.document_id
                found[document] = max(state.issued, found.get(document, 0))
        return found

    def with_more(self, changes: list[Change], rows: list[OutboxRow]) -> list[Change]:
        """Return `changes` with `rows`, which follow from the batch as a whole, behind the last one."""
        if not rows:
            return changes
        return [*changes[:-1], replace(changes[-1], outbox=(*changes[-1].outbox, *rows))]

    def _move(self, state: JobState, to: JobStatus, result: StageResult, change: Change) -> None:
        cause = f"{result.stage} {result.status}"
        if to is JobStatus.DONE and result.status == "failed":
            cause = f"{result.stage} published, then {result.status}"
        self.moves.append(Move(state.job_id, state.attempt, state.status, to, cause, change, result))
        final = self.finals.setdefault(state.job_id, Final(state.job_id, to))
        final.take(to, change)
        issued = change.generation if change.generation is not None else state.issued
        self.states[state.job_id] = replace(state, status=to, title=final.title or state.title, issued=issued)
