"""From an SQS event to a batch use case and back to AWS's partial batch response."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from indexmill.contracts.errors import TransientError
from indexmill.contracts.messages import NewerSchema, UnreadableMessage, read
from indexmill.platform.clock import Clock, SystemClock
from indexmill.platform.deliveries import BatchUseCase, Delivery, Done, Outcome, Poison, Retry
from indexmill.platform.observability import Observability
from indexmill.platform.queues import Queue

M = TypeVar("M", bound=BaseModel)

_MARGIN_S = 2.0
"""Kept back of the function's time so that the answer still gets out."""
_NEWER_SCHEMA_WAIT_S = 60.0


class SourceQueue(Protocol):
    """The queue that messages came from."""

    def give_back(self, receipt_handle: str, after_s: float) -> None:
        """Let a received message be seen again after `after_s` seconds."""
        ...


class LambdaContext(Protocol):
    """What we use of Lambda's context object."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the function is stopped."""
        ...


class SqsBatch(Generic[M]):
    """A Lambda handler for one queue.

    Each record is parsed by itself: an unreadable one goes to the dead letters at once and never takes its
    neighbours along, one of a newer version waits for newer code. The rest is handled as one batch.
    """

    def __init__(
        self,
        model: type[M],
        handle: BatchUseCase[M],
        *,
        source: SourceQueue,
        dead: Queue,
        observability: Observability,
        clock: Clock | None = None,
    ) -> None:
        """`source` is where records came from, `dead` its dead-letter queue."""
        self._model = model
        self._handle = handle
        self._source = source
        self._dead = dead
        self._observability = observability
        self._clock = clock or SystemClock()

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Handle one event; the answer names the records that must stay in the queue."""
        records: list[dict[str, Any]] = event.get("Records", [])
        deadline = self._clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - _MARGIN_S
        outcomes: dict[int, Outcome] = {}
        deliveries: dict[int, Delivery[M]] = {}
        for position, record in enumerate(records):
            try:
                message = read(self._model, record["body"])
            except NewerSchema as error:
                outcomes[position] = Retry(_NEWER_SCHEMA_WAIT_S, f"newer schema: {error}")
            except UnreadableMessage as error:
                outcomes[position] = Poison(str(error))
            else:
                count = int(record.get("attributes", {}).get("ApproximateReceiveCount", 1))
                deliveries[position] = Delivery(message, count, deadline)
        outcomes.update(self._run(deliveries))
        failed = [
            records[at]["messageId"] for at in sorted(outcomes) if self._stays(records[at], outcomes[at])
        ]
        self._observability.flush()
        return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}

    def _run(self, deliveries: dict[int, Delivery[M]]) -> dict[int, Outcome]:
        if not deliveries:
            return {}
        outcomes: Sequence[Outcome] = self._handle(list(deliveries.values()))
        return dict(zip(deliveries, outcomes, strict=True))

    def _stays(self, record: dict[str, Any], outcome: Outcome) -> bool:
        if isinstance(outcome, Done):
            return False
        if isinstance(outcome, Poison):
            return self._set_aside(record, outcome)
        log = self._observability.log
        fields = {"sqs_message_id": record["messageId"], "after_s": round(outcome.after_s, 3)}
        log.info("message.given_back", extra={**fields, "reason": outcome.reason})
        try:
            self._source.give_back(record["receiptHandle"], outcome.after_s)
        except Exception:
            # The queue's own visibility time-out gives it back then, only later.
            log.warning("message.give_back_failed", exc_info=True)
        return True

    def _set_aside(self, record: dict[str, Any], outcome: Poison) -> bool:
        self._observability.log.error(
            "message.poison", extra={"sqs_message_id": record["messageId"], "reason": outcome.reason}
        )
        try:
            return bool(self._dead.send([record["body"]]))
        except TransientError:
            return True
