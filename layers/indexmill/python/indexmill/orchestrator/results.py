"""Apply what stages report: one fence, one transaction, then the messages that follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import JobError, JobStatus
from indexmill.contracts.messages import StageFailure, StageResult, write
from indexmill.contracts.pipeline import BY_NAME, Stage
from indexmill.orchestrator.changes import Decide, apply_results
from indexmill.orchestrator.job_store import JobStore
from indexmill.orchestrator.ports import Again, Change, JobState, OutboxRow
from indexmill.orchestrator.relay import Relay
from indexmill.orchestrator.stages.registry import MODULES
from indexmill.orchestrator.state_machine import Decision, Verdict, advance
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Retry
from indexmill.platform.ids import new_id
from indexmill.platform.observability import Observability
from indexmill.platform.time.clock import Clock

_EARLY_WAIT_S = 2.0
_DATABASE_WAIT_S = 5.0
_SYSTEM = CallerContext(caller_id="system", caller_type="service")


@dataclass(frozen=True, slots=True)
class Decider:
    """Turns one result into one change of its job, without I/O."""

    clock: Clock
    make_id: Callable[[], str] = new_id

    def __call__(self, state: JobState | None, result: StageResult) -> Change:
        """Decide about `result`; an unknown job's result is late, so that nobody sends it again."""
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
        output = MODULES[result.stage].facts(result)
        if output.fenced:
            again = Again(self.make_id(), state.generation)
            return Change(Decision(Verdict.AGAIN), again=again, status=state.status)
        following = BY_NAME.get(to.value)
        return Change(
            decision,
            status=to,
            title=output.title,
            chunk_count=output.chunk_count,
            outbox=(self._next_message(following, state, result),) if following else (),
            generation=state.generation if following and following.publishes else None,
            facts=output.digests,
            stored=output.stored,
        )

    def _failure(self, decision: Decision, state: JobState, result: StageResult) -> Change:
        if BY_NAME[result.stage].publishes and state.visible:
            # Its worker published and then died before it could say so.
            return Change(Decision(Verdict.ADVANCE, JobStatus.DONE), status=JobStatus.DONE)
        return Change(decision, error=self._error(result), status=JobStatus.FAILED)

    def _next_message(self, stage: Stage, state: JobState, before: StageResult) -> OutboxRow:
        message_id = self.make_id()
        payload = write(MODULES[stage.name].next_message(message_id, state, before))
        caller_id = state.target.caller_id
        return OutboxRow(message_id, state.job_id, state.attempt, stage.name, payload, caller_id=caller_id)

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


@dataclass(frozen=True, slots=True)
class Recorder:
    """Applies results to the store and tells about it; returns the messages that follow."""

    store: JobStore
    decide: Decide
    observability: Observability

    def __call__(self, results: Sequence[StageResult]) -> list[OutboxRow]:
        """Apply and return the new outbox rows, which this process holds."""
        return [row for change in self.changes(results) for row in change.outbox]

    def changes(self, results: Sequence[StageResult]) -> list[Change]:
        """Apply and return the change of each result, in order."""
        changes = self.store.transaction(lambda tx: apply_results(tx, results, self.decide))
        for result, change in zip(results, changes, strict=True):
            self._tell(result, change)
        return changes

    def _tell(self, result: StageResult, change: Change) -> None:
        fields = {"job_id": result.job_id, "stage": result.stage, "attempt": result.attempt}
        log, elapsed_ms = self.observability.log, result.elapsed_ms
        if change.error is not None:
            log.warning("stage.failed", extra={**fields, **_why(change.error), "elapsed_ms": elapsed_ms})
        else:
            verdict = change.decision.verdict.name.lower()
            log.info("result.applied", extra={**fields, "verdict": verdict, "elapsed_ms": elapsed_ms})
        if change.status is JobStatus.DONE and change.decision.verdict is Verdict.ADVANCE:
            self.observability.emit("job_completed", _SYSTEM, job_id=result.job_id)
        if change.error is not None:
            self.observability.count("jobs_failed_total", stage=result.stage)
            self.observability.emit("job_failed", _SYSTEM, **fields, code=change.error.code)


def _why(error: JobError) -> dict[str, object]:
    """Return an error's fields for the log, without those that say nothing; `message` is the log's own."""
    why = {"code": error.code, "cause": error.cause, "tries": error.attempts, "reason": error.message}
    return {name: value for name, value in why.items() if value is not None}


@dataclass(slots=True)
class ResultBatch:
    """The callback queue's use case."""

    record: Recorder
    relay: Relay

    def __call__(self, deliveries: Sequence[Delivery[StageResult]]) -> list[Outcome]:
        """Apply the batch in one transaction and send what follows; results ahead of their job wait.

        While Postgres is unavailable the whole batch waits. A process that dies between the commit and the
        send leaves claimed rows, which the sweeper sends when their claim has expired.
        """
        results = [delivery.message for delivery in deliveries]
        try:
            changes = self.record.changes(results)
        except TransientError as error:
            return [Retry(_DATABASE_WAIT_S, error.code) for _ in results]
        except Exception:
            if len(deliveries) > 1:
                # One result spoils the batch: each by itself, so that its neighbours go through.
                return [outcome for delivery in deliveries for outcome in self([delivery])]
            self.record.observability.log.exception("result.failed", extra={"job_id": results[0].job_id})
            return [Retry(_DATABASE_WAIT_S, ErrorCode.INTERNAL_ERROR)]
        self.relay.send([row for change in changes for row in change.outbox])
        return [
            Retry(_EARLY_WAIT_S, "early") if change.decision.verdict is Verdict.EARLY else Done()
            for change in changes
        ]
