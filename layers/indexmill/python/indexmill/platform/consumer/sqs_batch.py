"""Lambda handler of an SQS queue: event to batch use case to AWS's partial batch response."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from indexmill.contracts.messages import Message, NewerSchema, UnreadableMessage, read
from indexmill.platform.consumer.deliveries import BatchUseCase, Delivery, Outcome, Poison, Wait
from indexmill.platform.consumer.delivery_log import DeliveryLog, DeliveryRecord, SuspectTry
from indexmill.platform.consumer.settling import LambdaContext, Received, Settling, SourceQueue, received
from indexmill.platform.consumer.vitals import SystemVitals, Vitals
from indexmill.platform.observability import Observability
from indexmill.platform.queues import Queue
from indexmill.platform.time.clock import Clock, SystemClock

M = TypeVar("M", bound=Message)

_MARGIN_S = 2.0
"""Kept back of the function's time so that the answer still gets out."""
_NEWER_SCHEMA_WAIT_S = 60.0
_SUSPECTS_APART_S = 1.0


class SqsBatch(Generic[M]):
    """A Lambda handler for one queue.

    Each record is parsed by itself: an unparsable one goes to the dead-letter queue at once and does not
    affect the others, one of a newer version waits for newer code. The rest is handled as one batch.

    With `delivery_log`, a message of an invocation that crashed or timed out is a suspect. Per invocation at
    most one suspect is handled, last and alone, after all others were deleted or returned.
    """

    def __init__(  # noqa: PLR0913 - everything around one queue
        self,
        model: type[M],
        handle: BatchUseCase[M],
        *,
        source: SourceQueue,
        dead: Queue,
        observability: Observability,
        delivery_log: DeliveryLog | None = None,
        clock: Clock | None = None,
        vitals: Vitals | None = None,
    ) -> None:
        """`source` is where records came from, `dead` its dead-letter queue."""
        self._model = model
        self._handle = handle
        self._delivery_log = delivery_log
        self._observability = observability
        self._clock = clock or SystemClock()
        self._vitals = vitals or SystemVitals()
        self._settling = Settling(source, dead, delivery_log, observability, self._clock)

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Handle one event; the answer names the records that must stay in the queue."""
        records = [received(record) for record in event.get("Records", [])]
        deadline = self._clock.monotonic() + context.get_remaining_time_in_millis() / 1000 - _MARGIN_S
        logged = self._logged(records)
        outcomes: dict[int, Outcome] = {}
        deliveries: dict[int, Delivery[M]] = {}
        for position, record in enumerate(records):
            try:
                message = read(self._model, record.body)
            except NewerSchema as error:
                outcomes[position] = Wait(_NEWER_SCHEMA_WAIT_S, f"newer schema: {error}")
            except UnreadableMessage as error:
                outcomes[position] = Poison(str(error))
            else:
                deliveries[position] = self._delivery(message, record, logged.get(position), deadline)
        suspects = [at for at in logged if at in deliveries and deliveries[at].is_suspect]
        if suspects:
            outcomes |= self._run({at: one for at, one in deliveries.items() if at not in suspects})
        else:
            outcomes |= self._run(deliveries)
        if suspects:
            staying = self._with_suspects(records, deliveries, logged, outcomes, suspects)
        else:
            staying = self._settling.settle(records, outcomes, logged)
        self._observability.flush()
        if staying:
            self._end_if_exhausted([each.receipt for at, each in enumerate(records) if at not in staying])
        return {"batchItemFailures": [{"itemIdentifier": records[at].message_id} for at in sorted(staying)]}

    def _end_if_exhausted(self, leaving: Sequence[str]) -> None:
        """End an environment without file descriptors or disk; `leaving` would be deleted."""
        missing = self._vitals.failing()
        if missing is None:
            return
        self._observability.log.error("environment.exhausted", extra={"missing": missing})
        if leaving:
            self._settling.delete(leaving)
        self._vitals.end()

    def _logged(self, records: Sequence[Received]) -> dict[int, DeliveryRecord]:
        """Return the records of redelivered messages, with this receive. A first delivery costs nothing."""
        if self._delivery_log is None:
            return {}
        again = {at: record for at, record in enumerate(records) if record.receives > 1}
        if not again:
            return {}
        found = self._delivery_log.read([record.message_id for record in again.values()])
        nothing = DeliveryRecord()
        return {
            at: found.get(record.message_id, nothing).after_receive(record.receives)
            for at, record in again.items()
        }

    def _delivery(
        self, message: M, record: Received, entry: DeliveryRecord | None, deadline: float
    ) -> Delivery[M]:
        if record.receives == 1:
            return Delivery(message, 1, deadline, receipt=record.receipt)
        entry = entry or DeliveryRecord()
        return Delivery(
            message,
            record.receives,
            deadline,
            tries=entry.tries + 1,
            crashes=entry.crashes,
            last_error=entry.last_error,
            receipt=record.receipt,
            least_wait_s=record.least_wait(self._clock.now().timestamp()),
        )

    def _run(self, deliveries: Mapping[int, Delivery[M]]) -> dict[int, Outcome]:
        if not deliveries:
            return {}
        outcomes: Sequence[Outcome] = self._handle(list(deliveries.values()))
        return dict(zip(deliveries, outcomes, strict=True))

    def _with_suspects(
        self,
        records: Sequence[Received],
        deliveries: Mapping[int, Delivery[M]],
        logged: Mapping[int, DeliveryRecord],
        outcomes: dict[int, Outcome],
        suspects: Iterable[int],
    ) -> set[int]:
        """Handle one suspect when nothing is left that it could take along."""
        # The one that came most often: so none of many comes back without end.
        chosen, *others = sorted(suspects, key=lambda at: -records[at].receives)
        outcomes |= {at: Wait(n * _SUSPECTS_APART_S, "suspect") for n, at in enumerate(others, 1)}
        staying = self._settling.settle(records, outcomes, logged, delete=True)
        delivery, record, entry = deliveries[chosen], records[chosen], logged[chosen]
        left = delivery.deadline + _MARGIN_S / 2 - self._clock.monotonic()
        with SuspectTry(self._settling.record, record.message_id, entry, after_s=left):
            outcome = self._run({chosen: delivery})
        return staying | self._settling.settle(records, outcome, logged)
