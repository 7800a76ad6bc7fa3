"""Results: apply a batch of them to their jobs in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from indexmill.contracts.job import JobStatus
from indexmill.contracts.messages import Retrying, StageResult
from indexmill.contracts.pipeline import BY_NAME
from indexmill.orchestrator.admission.admit import admit
from indexmill.orchestrator.admission.dependencies import settle_dependents
from indexmill.orchestrator.job_store import JobsTx
from indexmill.orchestrator.ports import Again, Change, JobState, JobUpdate, OutboxRow, Transition
from indexmill.orchestrator.resend import renewed
from indexmill.orchestrator.stages.output import Renewal
from indexmill.orchestrator.state_machine import Decision, Verdict

Decide = Callable[[JobState | None, StageResult], Change]
"""Decides about one result; the state is None for an unknown job. Must not do I/O."""


def apply_results(tx: JobsTx, results: Sequence[StageResult], decide: Decide) -> list[Change]:
    """Decide about each result in order and write every change; a result that was received before is late.

    New messages are claimed by this process. Those of jobs that are admitted in place of ended ones, and
    those that are sent again, are in the last change.
    """
    states = tx.lock_jobs(sorted({result.job_id for result in results if result.job_id}))
    received = tx.receive([result.message_id for result in results])
    batch = Ledger(_with_embedding_failures_seen(tx, states, results), received, decide)
    changes = [batch.take(result) for result in results]
    if batch.early:
        # An early result must count when it is delivered again.
        tx.forget(batch.early)
    if batch.transitions:
        tx.save_results(list(batch.updates.values()), batch.transitions)
    if batch.retries:
        tx.save_retries(batch.retries)
    if fences := batch.fences():
        tx.raise_fences(fences)
    ended = batch.ended()
    if awaited := [job_id for job_id in ended if batch.states[job_id].has_dependents]:
        settle_dependents(tx, awaited)
    more = [_redispatch(tx, batch.states[job_id], again) for job_id, again in batch.again.items()]
    if ended:
        more += admit(tx, sorted({batch.states[job_id].target.caller_id for job_id in ended}), batch.done())
    if more:
        changes[-1] = replace(changes[-1], outbox=(*changes[-1].outbox, *more))
    return changes


def with_visibility(tx: JobsTx, states: Sequence[JobState]) -> list[JobState]:
    """Return the states, with whether search sees their work; lock the documents that they may publish."""
    issued = [state for state in states if state.issued is not None]
    if not issued:
        return list(states)
    published = tx.lock_documents([state.target for state in issued])
    return [
        state
        if state.issued is None
        else replace(state, visible=(published.get(state.target.document_id) or 0) >= state.issued)
        for state in states
    ]


def _with_embedding_failures_seen(
    tx: JobsTx, states: dict[str, JobState], results: Sequence[StageResult]
) -> dict[str, JobState]:
    """Return the states; a job whose embedding failed may have been published before its worker crashed."""
    failed = {
        result.job_id for result in results if BY_NAME[result.stage].publishes and result.status == "failed"
    }
    seen = with_visibility(tx, [states[job_id] for job_id in failed if job_id in states])
    return states | {state.job_id: state for state in seen}


def _redispatch(tx: JobsTx, state: JobState, again: Again) -> OutboxRow:
    """Commit the current stage's message once more, which was fenced out, with a fresh generation."""
    stage = BY_NAME[state.status.value].name
    renewal = Renewal(again.message_id, state.attempt, again.generation)
    row = renewed(state, stage, tx.kept_payloads(state.job_id).get(stage), renewal)
    tx.redispatch(row, again.generation)
    return row


@dataclass(slots=True)
class Ledger:
    """Decides results in order, each on the state that the one before left."""

    states: dict[str, JobState]
    """Locked jobs by id."""
    received: set[str]
    """Message ids that were not received before."""
    decide: Decide
    transitions: list[Transition] = field(default_factory=list)
    updates: dict[str, JobUpdate] = field(default_factory=dict)
    """By job id."""
    retries: dict[str, Retrying] = field(default_factory=dict)
    """Until when a job's stage waits, by job id."""
    again: dict[str, Again] = field(default_factory=dict)
    """Stages whose message is sent again, by job id."""
    early: list[str] = field(default_factory=list)
    """Message ids that must not count yet."""

    def take(self, result: StageResult) -> Change:
        """Decide about one result and note what follows."""
        state = self.states.get(result.job_id or "")
        if result.message_id not in self.received:
            return Change(Decision(Verdict.LATE), status=state.status if state else None)
        self.received.discard(result.message_id)
        change = self.decide(state, result)
        if change.decision.verdict is Verdict.EARLY:
            self.early.append(result.message_id)
        elif state is not None and change.again is not None:
            self.again[state.job_id] = change.again
        elif state is not None and change.retrying is not None:
            self.retries[state.job_id] = change.retrying
        elif state is not None and change.decision.to is not None:
            self.retries.pop(state.job_id, None)
            self.again.pop(state.job_id, None)
            self._move(state, change.decision.to, result, change)
        return change

    def done(self) -> list[str]:
        """Return the jobs that are done now."""
        return [update.job_id for update in self.updates.values() if update.status is JobStatus.DONE]

    def ended(self) -> list[str]:
        """Return the jobs that are done or failed now."""
        return [update.job_id for update in self.updates.values() if update.status.terminal]

    def fences(self) -> dict[str, int]:
        """Return, by document id, the generation up to which nothing may be published any more."""
        found: dict[str, int] = {}
        for update in self.updates.values():
            state = self.states[update.job_id]
            if update.status is JobStatus.FAILED and state.issued is not None:
                document = state.target.document_id
                found[document] = max(state.issued, found.get(document, 0))
        return found

    def _move(self, state: JobState, to: JobStatus, result: StageResult, change: Change) -> None:
        cause = f"{result.stage} {result.status}"
        if to is JobStatus.DONE and result.status == "failed":
            cause = f"{result.stage} published, then {result.status}"
        self.transitions.append(
            Transition(
                state.job_id,
                state.attempt,
                state.status,
                to,
                cause,
                change.error,
                result.tries,
                result.worker,
                result.elapsed_ms,
                change.outbox,
            )
        )
        known = self.updates.get(state.job_id, JobUpdate(state.job_id, to))
        update = self.updates[state.job_id] = JobUpdate(
            state.job_id,
            to,
            change.error,
            change.title or known.title,
            known.chunk_count if change.chunk_count is None else change.chunk_count,
            known.generation if change.generation is None else change.generation,
            change.stored or known.stored,
            {**known.facts, **change.facts},
        )
        issued = change.generation if change.generation is not None else state.issued
        self.states[state.job_id] = replace(
            state, status=to, title=update.title or state.title, issued=issued
        )
