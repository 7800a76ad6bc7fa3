"""Collect what a batch of results does to its jobs before anything is written; shared by every store."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.messages import Retrying, StageResult
from indexmill.orchestrator.ports import Change, Decide, JobState, OutboxRow
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


@dataclass(frozen=True, slots=True)
class Final:
    """A job's columns after the batch."""

    job_id: str
    status: JobStatus
    error: JobError | None
    title: str | None
    chunk_count: int | None


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
        elif state is not None and change.retrying is not None:
            self.notes[state.job_id] = change.retrying
        elif state is not None and change.decision.to is not None:
            self.notes.pop(state.job_id, None)
            self._move(state, change.decision.to, result, change)
        return change

    def callers_with_room(self) -> list[str]:
        """Return the callers of whom a job ended: another one of theirs may start."""
        ended = {final.job_id for final in self.finals.values() if final.status.terminal}
        return sorted({self.states[job_id].target.caller_id for job_id in ended})

    def done(self) -> list[str]:
        """Return the jobs that are done now."""
        return [final.job_id for final in self.finals.values() if final.status is JobStatus.DONE]

    def with_admitted(self, changes: list[Change], admitted: list[OutboxRow]) -> list[Change]:
        """Return `changes` with the messages of admitted jobs behind the last one."""
        if not admitted:
            return changes
        return [*changes[:-1], replace(changes[-1], outbox=(*changes[-1].outbox, *admitted))]

    def _move(self, state: JobState, to: JobStatus, result: StageResult, change: Change) -> None:
        cause = f"{result.stage} {result.status}"
        self.moves.append(Move(state.job_id, state.attempt, state.status, to, cause, change, result))
        before = self.finals.get(state.job_id)
        title = change.title or (before.title if before else None)
        count = (
            change.chunk_count if change.chunk_count is not None else (before.chunk_count if before else None)
        )
        self.finals[state.job_id] = Final(state.job_id, to, change.error, title, count)
        self.states[state.job_id] = replace(state, status=to, title=title or state.title)
