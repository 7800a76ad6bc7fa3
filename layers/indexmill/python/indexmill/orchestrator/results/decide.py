"""State machine of a job: the decision about one result, what changes of its job, and what follows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from indexmill.contracts.content import ChunkSettings, Unchanged
from indexmill.contracts.cost import Budget, Prices, Spent
from indexmill.contracts.errors import GONE, ErrorCode
from indexmill.contracts.identity import new_id
from indexmill.contracts.job import DuplicateOf, JobError, JobStatus, PageChange
from indexmill.contracts.messages import (
    Message,
    Retrying,
    ScrapeResult,
    StageFailure,
    StageResult,
    Stored,
    write,
)
from indexmill.contracts.pipeline import BY_NAME, ORDER, STAGES, TRANSITIONS, Stage
from indexmill.orchestrator.stages import embedding
from indexmill.orchestrator.stages.output import Output
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.orchestrator.store.rows import JobState, OutboxRow
from indexmill.platform.time import Clock


class Verdict(StrEnum):
    """Position of a result relative to the job's state."""

    ADVANCE = "advance"
    FAIL = "fail"
    LATE = "already_advanced"
    """Behind the state, or a copy: nothing happens, and that is success."""
    EARLY = "early"
    """Ahead of the state: kept and looked at again, never dropped."""
    WAIT = "waiting"
    """The stage is current and waits for its next try: that is recorded, the state stays."""
    REDISPATCH = "redispatch"
    """The stage is current and was fenced out by another job's end: its message is redispatched."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The verdict and, when the job moves, where to."""

    verdict: Verdict
    to: JobStatus | None = None


_LATE = Decision(Verdict.LATE)
_EARLY = Decision(Verdict.EARLY)


def advance(status: JobStatus, attempt: int, *, stage: str, result_attempt: int, success: bool) -> Decision:
    """Decide about the result of `stage`, attempt `result_attempt`, for a job in `status` and `attempt`.

    Terminal states are final; an older attempt changes nothing; a newer attempt or a later stage than the
    job's own is early.
    """
    if result_attempt != attempt:
        return _LATE if result_attempt < attempt else _EARLY
    if status.terminal:
        return _LATE
    position, result_position = ORDER.get(status.value, -1), ORDER[stage]
    if result_position != position:
        return _LATE if result_position < position else _EARLY
    if not success:
        return Decision(Verdict.FAIL, JobStatus.FAILED)
    return Decision(Verdict.ADVANCE, JobStatus(TRANSITIONS[stage]))


@dataclass(frozen=True, slots=True)
class Redispatch:
    """The current stage's kept message goes out under a new id and generation, same attempt."""

    message_id: str
    generation: int | None
    """None for a stage that does not publish."""


@dataclass(frozen=True, slots=True)
class Change:
    """Effect of one result on its job: the verdict, and the rows of the same transaction."""

    decision: Decision
    error: JobError | None = None
    title: str | None = None
    chunk_count: int | None = None
    outbox: tuple[OutboxRow, ...] = ()
    """The next stage's message, and those of jobs that are admitted in an ended job's place."""
    retrying: Retrying | None = None
    generation: int | None = None
    """Of the message that publishes, when one follows."""
    redispatch: Redispatch | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    """What went into the result, for comparing."""
    stored: Stored | None = None
    """Where the raw content is kept."""
    change: PageChange | None = None
    unchanged: Unchanged | None = None
    duplicate_of: DuplicateOf | None = None
    status: JobStatus | None = None
    """The job's status afterwards; None for an unknown job."""


@dataclass(frozen=True, slots=True)
class Decider:
    """Turns one result into one change of its job, without I/O."""

    clock: Clock
    make_id: Callable[[], str] = new_id
    prices: Prices = field(default_factory=Prices)

    def __call__(self, state: JobState | None, result: StageResult) -> Change:
        """Decide about `result`; an unknown job's result is late, so that it is not redelivered."""
        if state is None:
            return Change(Decision(Verdict.LATE))
        decision = advance(
            state.status,
            state.attempt,
            stage=result.stage,
            result_attempt=result.attempt,
            success=result.status != "failed",
        )
        if decision.verdict is Verdict.ADVANCE and decision.to is not None:
            return self._success(decision, decision.to, state, result)
        if decision.verdict is Verdict.FAIL:
            return self._failure(decision, state, result)
        return Change(decision, status=state.status)

    def _success(self, decision: Decision, to: JobStatus, state: JobState, result: StageResult) -> Change:
        if result.retrying is not None:
            return Change(Decision(Verdict.WAIT), retrying=result.retrying, status=state.status)
        output = MODULES[result.stage].facts(state, result)
        if output.fenced or (output.unchanged is not None and not state.still_published):
            generation = state.generation if BY_NAME[result.stage].publishes else None
            redispatch = Redispatch(self.make_id(), generation)
            return Change(Decision(Verdict.REDISPATCH), redispatch=redispatch, status=state.status)
        if state.original is not None and isinstance(result, ScrapeResult):
            return self._duplicate(state, result, output)
        if output.ends or output.unchanged is not None:
            decision, to = Decision(Verdict.ADVANCE, JobStatus.DONE), JobStatus.DONE
        following = BY_NAME.get(to.value)
        if following and state.budget:
            over = excess(state.budget, output, self.cost_after(state, result), self.prices)
            if over is not None:
                return self._over_budget(over, result)
        return Change(
            decision,
            status=to,
            title=output.title,
            chunk_count=output.chunk_count,
            outbox=(self._next_message(following, state, result),) if following else (),
            generation=state.generation if following and following.publishes else None,
            facts=output.digests,
            stored=output.stored,
            change=output.change,
            unchanged=output.unchanged,
        )

    def _duplicate(self, state: JobState, result: StageResult, output: Output) -> Change:
        """Publish nothing; take away what is published."""
        last = STAGES[-1]
        to = JobStatus(last.name) if state.is_shown else JobStatus.DONE
        rows: tuple[OutboxRow, ...] = ()
        if state.is_shown:
            digest = output.digests.get("content_sha256")
            named = replace(state, title=output.title or state.title, content_sha256=digest)
            message = embedding.withdrawal(self.make_id(), named, result)
            rows = (self._row(message, last, state),)
        return Change(
            Decision(Verdict.ADVANCE, to),
            status=to,
            title=output.title,
            chunk_count=0,
            outbox=rows,
            generation=state.generation if rows else None,
            facts=output.digests,
            stored=output.stored,
            change=output.change,
            duplicate_of=state.original,
        )

    def cost_after(self, state: JobState, result: StageResult) -> float:
        """Return what a job with a bound for it cost with this result, in US dollars."""
        if state.budget is None or state.budget.max_cost_usd is None:
            return 0.0
        return state.spent_usd + self.prices.of(result.spent or Spent())

    def _over_budget(self, over: str, result: StageResult) -> Change:
        failed, now = JobStatus.FAILED, self.clock.now()
        error = JobError(stage=result.stage, code=ErrorCode.BUDGET_EXCEEDED, message=over, at=now)
        return Change(Decision(Verdict.FAIL, failed), error=error, status=failed)

    def _failure(self, decision: Decision, state: JobState, result: StageResult) -> Change:
        if BY_NAME[result.stage].publishes and state.visible:
            # Its worker published and then died before it could say so.
            return Change(Decision(Verdict.ADVANCE, JobStatus.DONE), status=JobStatus.DONE)
        change: PageChange | None = "removed" if state.previous and _is_gone(result) else None
        return Change(decision, error=self._error(result), change=change, status=JobStatus.FAILED)

    def _next_message(self, stage: Stage, state: JobState, before: StageResult) -> OutboxRow:
        return self._row(MODULES[stage.name].next_message(self.make_id(), state, before), stage, state)

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


def excess(budget: Budget, output: Output, spent_usd: float, prices: Prices) -> str | None:
    """Return which bound the job exceeds after a stage, for people; None when it is within all of them.

    `spent_usd` is the price of what was used so far, this stage included.
    """
    if budget.max_bytes is not None and (output.size or 0) > budget.max_bytes:
        return f"The content has {output.size} bytes; the job's budget is {budget.max_bytes}."
    if budget.max_chunks is not None and (output.chunk_count or 0) > budget.max_chunks:
        return f"The document has {output.chunk_count} chunks; the job's budget is {budget.max_chunks}."
    cost = spent_usd + prices.of(Spent(tokens_embedded=_tokens_to_embed(output)))
    if budget.max_cost_usd is not None and cost > budget.max_cost_usd:
        return f"The job would cost {cost:.6f} US dollars; its budget is {budget.max_cost_usd}."
    return None


def _tokens_to_embed(output: Output) -> int:
    """Return the tokens of the chunks; of those that are stored elsewhere, the most that they can have."""
    if output.tokens is not None:
        return output.tokens
    return (output.chunk_count or 0) * ChunkSettings().max_tokens
