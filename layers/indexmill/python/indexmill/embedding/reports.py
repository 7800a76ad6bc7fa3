"""What becomes of each delivery: the report to the Orchestrator, and the outcome for the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import Embedded, EmbedTask, StageFailure, StageResult, write
from indexmill.platform.clock import Clock
from indexmill.platform.deliveries import Delivery, Done, Outcome, Poison, Retry
from indexmill.platform.queues import Queue
from indexmill.platform.retry import RetryPolicy

_SOON_S: Final = 1.0


@dataclass(slots=True)
class Reports:
    """Collects outcomes of one batch by position and sends its reports in one go."""

    deliveries: Sequence[Delivery[EmbedTask]]
    callbacks: Queue
    policy: RetryPolicy
    clock: Clock
    started: float
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    _pending: dict[int, StageResult] = field(default_factory=dict)

    def success(self, position: int, embedded: Embedded) -> None:
        """The document is published, or a newer version already was."""
        task = self.deliveries[position].message
        self.outcomes[position] = Done()
        if task.job_id is not None:
            self._pending[position] = self._result(task, embedded=embedded)

    def error(self, position: int, error: IndexmillError) -> None:
        """The try failed: the message waits for its next one, or its job fails."""
        tries = self.deliveries[position].receive_count
        if not error.retryable:
            self.failure(position, StageFailure(code=error.code, message=error.message, tries=tries))
        elif tries < self.policy.max_tries:
            self.outcomes[position] = Retry(self._delay(tries, error), error.code)
        else:
            retries = self.policy.max_retries
            message = f"Embedding failed after {retries} retries"
            code = ErrorCode.MAX_RETRIES_EXCEEDED
            self.failure(position, StageFailure(code=code, message=message, cause=error.code, tries=tries))

    def failure(self, position: int, failure: StageFailure) -> None:
        """The job fails. Without a job nobody is told, so the message is kept as a dead letter."""
        task = self.deliveries[position].message
        if task.job_id is None:
            self.outcomes[position] = Poison(failure.cause or failure.code)
            return
        self.outcomes[position] = Done()
        self._pending[position] = self._result(task, failure=failure)

    def untouched(self, position: int) -> None:
        """There is no time left for it in this invocation."""
        self.outcomes[position] = Retry(_SOON_S, "deadline")

    def send(self) -> list[Outcome]:
        """Send all reports and return the outcomes in order; what was not reported is done once more."""
        if self._pending:
            positions = list(self._pending)
            try:
                refused = self.callbacks.send([write(self._pending[position]) for position in positions])
            except TransientError:
                refused = list(range(len(positions)))
            for at in refused:
                tries = self.deliveries[positions[at]].receive_count
                self.outcomes[positions[at]] = Retry(self.policy.delay(tries), ErrorCode.QUEUE_UNAVAILABLE)
        return [self.outcomes[position] for position in range(len(self.deliveries))]

    def _delay(self, tries: int, error: IndexmillError) -> float:
        return self.policy.delay(tries, retry_after=error.retry_after)

    def _result(
        self, task: EmbedTask, embedded: Embedded | None = None, failure: StageFailure | None = None
    ) -> StageResult:
        return StageResult(
            # The same in every copy, so that a second report of the same work counts once.
            message_id=f"{task.message_id}:result",
            job_id=task.job_id,
            attempt=task.attempt,
            request_id=task.request_id,
            stage="embedding",
            status="failed" if failure else "success",
            embedded=embedded,
            failure=failure,
            elapsed_ms=round((self.clock.monotonic() - self.started) * 1000),
        )
