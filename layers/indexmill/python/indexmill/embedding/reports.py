"""What becomes of each delivery: the report to the Orchestrator, and the outcome for the queue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.contracts.messages import Embedded, EmbedTask, StageFailure, StageResult, write
from indexmill.platform.consumer.deliveries import Delivery, Done, Outcome, Poison, Retry, Wait
from indexmill.platform.consumer.reporter import after_error, poisoned, wait_report
from indexmill.platform.ids import worker_id
from indexmill.platform.queues import Queue
from indexmill.platform.time.clock import Clock
from indexmill.platform.time.retry import RetryPolicy

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
        delivery = self.deliveries[position]
        self.outcomes[position] = Done()
        if delivery.message.job_id is not None:
            self._pending[position] = self._result(delivery, embedded=embedded)

    def error(self, position: int, error: IndexmillError) -> None:
        """The try failed: the message waits, for its next one or without one, or its job fails."""
        delivery = self.deliveries[position]
        follows = after_error(delivery, error, self.policy, "Embedding failed")
        if isinstance(follows, StageFailure):
            self.failure(position, follows)
            return
        self.outcomes[position] = follows
        report = wait_report(delivery, follows, "embedding", self.clock)
        if report is not None:
            self._pending[position] = report

    def failure(self, position: int, failure: StageFailure) -> None:
        """The job fails. Without a job nobody is told, so the message is kept as a dead letter."""
        delivery = self.deliveries[position]
        if delivery.message.job_id is None:
            self.outcomes[position] = Poison(failure.cause or failure.code)
            return
        self.outcomes[position] = Done()
        self._pending[position] = self._result(delivery, failure=failure)

    def poison(self, position: int) -> None:
        """It took its process along too often: it is not tried any more."""
        self.failure(position, poisoned(self.deliveries[position], "Embedding did not survive this document"))

    def untouched(self, position: int) -> None:
        """There is no time left for it in this invocation."""
        self.outcomes[position] = Wait(self.deliveries[position].wait(_SOON_S), "deadline")

    def send(self) -> list[Outcome]:
        """Send all reports and return the outcomes in order; what was not reported is done once more."""
        if self._pending:
            positions = list(self._pending)
            try:
                refused = self.callbacks.send([write(self._pending[position]) for position in positions])
            except TransientError:
                refused = list(range(len(positions)))
            for at in refused:
                position = positions[at]
                if not isinstance(self.outcomes[position], Retry | Wait):
                    wait = self.deliveries[position].wait(_SOON_S)
                    self.outcomes[position] = Wait(wait, ErrorCode.QUEUE_UNAVAILABLE)
        return [self.outcomes[position] for position in range(len(self.deliveries))]

    def _result(
        self,
        delivery: Delivery[EmbedTask],
        embedded: Embedded | None = None,
        failure: StageFailure | None = None,
    ) -> StageResult:
        task = delivery.message
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
            tries=delivery.tries,
            worker=worker_id(),
            elapsed_ms=round((self.clock.monotonic() - self.started) * 1000),
        )
