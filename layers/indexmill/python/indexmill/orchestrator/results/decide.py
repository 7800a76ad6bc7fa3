"""State machine of a job: the decision about one result, what changes of its job, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from indexmill.contracts.content import ChunkSettings
from indexmill.contracts.cost import Budget, Prices, Spent
from indexmill.contracts.errors import GONE, ErrorCode
from indexmill.contracts.identity import new_id
from indexmill.contracts.job import JobError, JobStatus, PageChange
from indexmill.contracts.messages import (
    EmbedResult,
    Message,
    ScrapeResult,
    StageFailure,
    StageResult,
    write,
)
from indexmill.contracts.pipeline import BY_NAME, ORDER, STAGES, TRANSITIONS, Stage
from indexmill.orchestrator.stages import embedding
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.orchestrator.store.results import Change, Verdict
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.platform.time import Clock


def advance(status: JobStatus, attempt: int, *, stage: str, result_attempt: int, success: bool) -> Change:
    """Decide about the result of `stage`, attempt `result_attempt`, for a job in `status` and `attempt`.

    Return the verdict and, when the job moves, its new status. Terminal states are final; an older attempt
    changes nothing; a newer attempt or a later stage than the job's own is early.
    """
    if result_attempt != attempt:
        return _LATE if result_attempt < attempt else _EARLY
    if status.terminal:
        return _LATE
    position, result_position = ORDER.get(status.value, -1), ORDER[stage]
    if result_position != position:
        return _LATE if result_position < position else _EARLY
    if not success:
        return Change(Verdict.FAIL, JobStatus.FAILED)
    return Change(Verdict.ADVANCE, JobStatus(TRANSITIONS[stage]))


_LATE: Final = Change(Verdict.LATE)
_EARLY: Final = Change(Verdict.EARLY)


@dataclass(frozen=True, slots=True)
class Decider:
    """Turns one result into one change of its job, without I/O."""

    clock: Clock
    make_id: Callable[[], str] = new_id
    prices: Prices = field(default_factory=Prices)

    def __call__(self, state: JobState | None, result: StageResult) -> Change:
        """Decide about `result`; an unknown job's result is late, so that it is not redelivered."""
        if state is None:
            return _LATE
        change = advance(
            state.status,
            state.attempt,
            stage=result.stage,
            result_attempt=result.attempt,
            success=result.status != "failed",
        )
        if change.verdict is Verdict.ADVANCE and state.job_type == "delete" and result.retrying is None:
            erased = result.erased if isinstance(result, EmbedResult) else None
            return Change(Verdict.CONTINUE, state.status, erased=erased) if erased else _LATE
        if change.verdict is Verdict.ADVANCE and state.corpus_is_deleted:
            # Its submit was committed after the deletion had looked for jobs in flight.
            return self._ended(result, ErrorCode.CANCELED, "Its corpus was deleted.")
        if change.verdict is Verdict.ADVANCE and change.status is not None:
            return self._success(change.status, state, result)
        return self._failure(state, result) if change.moves else replace(change, status=state.status)

    def _success(self, to: JobStatus, state: JobState, result: StageResult) -> Change:
        if result.retrying is not None:
            return Change(Verdict.WAIT, state.status, retrying=result.retrying)
        change = MODULES[result.stage].facts(state, result)
        if change.fenced or (change.unchanged is not None and not state.still_published):
            generation = state.generation if BY_NAME[result.stage].publishes else None
            copy = self.make_id()
            return Change(Verdict.REDISPATCH, state.status, generation=generation, redispatch=copy)
        if state.original is not None and isinstance(result, ScrapeResult):
            return self._duplicate(state, result, change)
        if change.ends or change.unchanged is not None:
            to = JobStatus.DONE
        following = BY_NAME.get(to.value)
        if following is None:
            return replace(change, status=to)
        if state.budget:
            over = excess(state.budget, change, self.cost_after(state, result), self.prices)
            if over is not None:
                return self._ended(result, ErrorCode.BUDGET_EXCEEDED, over)
        message = MODULES[following.name].next_message(self.make_id(), state, result)
        generation = state.generation if following.publishes else None
        return replace(
            change, status=to, outbox=(self._row(message, following, state),), generation=generation
        )

    def _duplicate(self, state: JobState, result: StageResult, change: Change) -> Change:
        """Publish nothing; take away what is published."""
        change = replace(
            change, status=JobStatus.DONE, chunk_count=0, unchanged=None, duplicate_of=state.original
        )
        if not state.is_shown:
            return change
        last, digest = STAGES[-1], change.facts.get("content_sha256")
        named = replace(state, title=change.title or state.title, content_sha256=digest)
        message = embedding.withdrawal(self.make_id(), named, result)
        rows = (self._row(message, last, state),)
        return replace(change, status=JobStatus(last.name), outbox=rows, generation=state.generation)

    def cost_after(self, state: JobState, result: StageResult) -> float:
        """Return what a job with a bound for it cost with this result, in US dollars."""
        if state.budget is None or state.budget.max_cost_usd is None:
            return 0.0
        return state.spent_usd + self.prices.of(result.spent or Spent())

    def _ended(self, result: StageResult, code: ErrorCode, why: str) -> Change:
        """Fail the job although its stage succeeded."""
        error = JobError(stage=result.stage, code=code, message=why, at=self.clock.now())
        return Change(Verdict.FAIL, JobStatus.FAILED, error)

    def _failure(self, state: JobState, result: StageResult) -> Change:
        if BY_NAME[result.stage].publishes and state.visible:
            # Its worker published and then died before it could say so.
            at, generation = state.searchable_at, state.issued
            seen = embedding.version_facts(at, generation) if at is not None else {}
            return Change(Verdict.ADVANCE, JobStatus.DONE, facts=seen)
        change: PageChange | None = "removed" if state.previous and _is_gone(result) else None
        return Change(Verdict.FAIL, JobStatus.FAILED, self._error(result), change=change)

    def _row(self, message: Message, stage: Stage, state: JobState) -> OutboxRow:
        caller_id, payload = state.target.caller_id, write(message)
        return OutboxRow(
            message.message_id, state.job_id, state.attempt, stage.name, payload, caller_id=caller_id
        )

    def _error(self, result: StageResult) -> JobError:
        failure = result.failure or StageFailure(code=ErrorCode.INTERNAL_ERROR, message="The stage failed.")
        return JobError(
            stage=result.stage,
            code=failure.code,
            message=failure.message,
            at=self.clock.now(),
            cause=failure.cause,
            attempts=failure.tries,
        )


def _is_gone(result: StageResult) -> bool:
    return result.failure is not None and result.failure.code in GONE


def excess(budget: Budget, change: Change, spent_usd: float, prices: Prices) -> str | None:
    """Return which bound the job exceeds after a stage, for people; None when it is within all of them.

    `spent_usd` is the price of what was used so far, this stage included.
    """
    if budget.max_bytes is not None and (change.size or 0) > budget.max_bytes:
        return f"The content has {change.size} bytes; the job's budget is {budget.max_bytes}."
    if budget.max_chunks is not None and (change.chunk_count or 0) > budget.max_chunks:
        return f"The document has {change.chunk_count} chunks; the job's budget is {budget.max_chunks}."
    cost = spent_usd + prices.of(Spent(tokens_embedded=_tokens_to_embed(change)))
    if budget.max_cost_usd is not None and cost > budget.max_cost_usd:
        return f"The job would cost {cost:.6f} US dollars; its budget is {budget.max_cost_usd}."
    return None


def _tokens_to_embed(change: Change) -> int:
    """Return the tokens of the chunks; of those that are stored elsewhere, the most that they can have."""
    if change.tokens is not None:
        return change.tokens
    return (change.chunk_count or 0) * ChunkSettings().max_tokens
