"""Lambda handler of an SQS queue: delivers records to a use case, returns AWS's partial batch response."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, NoReturn, Protocol, TypeVar

from indexmill.contracts.errors import Defect, TransientError
from indexmill.contracts.messages import Message, NewerSchema, UnreadableMessage, read
from indexmill.platform.aws.sqs_queue import LONGEST_WAIT_S, Queue
from indexmill.platform.consumer.deliveries import (
    BatchUseCase,
    Delivery,
    Outcome,
    Poison,
    Retry,
    Wait,
)
from indexmill.platform.consumer.delivery_log import DeliveryLog, DeliveryRecord, SuspectTry
from indexmill.platform.limits.store import AgeNotes
from indexmill.platform.meter import METER
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock, SystemClock

_PATIENT_AFTER: Final = 20
"""Receives after which waits begin to grow."""
_SHARE: Final = (0.2, 0.25)
"""A wait as a share of the time since the first receive: a random value of this range, as jitter."""


class Received(NamedTuple):
    """The used fields of a record; a tuple, since one is made per message."""

    message_id: str
    receipt: str
    body: str
    receives: int
    """How often it was received, this time included."""
    first_received: str
    """Milliseconds since 1970; "0" when the queue does not return it."""
    sent: str = "0"
    """When it was sent, likewise."""

    def least_wait(self, now: float) -> float:
        """Return the minimum visibility timeout, in seconds, when the message is returned to the queue.

        Each return costs a receive, and `maxReceiveCount` is 100. Since waits grow with the outage, a message
        is received fewer times than that within its queue's retention period.
        """
        since = int(self.first_received) / 1000
        if self.receives <= _PATIENT_AFTER or not since:
            return 0.0
        # Jitter; nothing secret depends on it.
        return random.uniform(*_SHARE) * max(0.0, now - since)  # noqa: S311


def log_fields(message_id: str, body: str) -> dict[str, str]:
    """Return fields for a log line: the SQS message id, and the ids of job and request in the body."""
    fields = {"sqs_message_id": message_id}
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return fields
    ids = value if isinstance(value, dict) else {}
    return fields | {name: ids[name] for name in ("job_id", "request_id") if isinstance(ids.get(name), str)}


def received(record: dict[str, Any]) -> Received:
    """Read one record of a Lambda event."""
    attributes = record.get("attributes", {})
    return Received(
        record["messageId"],
        record["receiptHandle"],
        record["body"],
        int(attributes.get("ApproximateReceiveCount", 1)),
        attributes.get("ApproximateFirstReceiveTimestamp", "0"),
        attributes.get("SentTimestamp", "0"),
    )


def refuse_other_queues(event: dict[str, Any], own: Sequence[Queue]) -> None:
    """Raise Defect for records of a queue that is not in `own`: they stay in it."""
    for arn in {record.get("eventSourceARN", "") for record in event.get("Records", [])}:
        if not any(queue.is_at(arn) for queue in own):
            raise Defect(f"these records are of another queue: {arn}")


class LambdaContext(Protocol):
    """The used part of Lambda's context object."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the function is stopped."""
        ...


@dataclass(frozen=True, slots=True)
class Settlement:
    """Applies outcomes to the queue that messages came from."""

    source: Queue
    dead: Queue
    delivery_log: DeliveryLog | None
    observability: Observability
    clock: Clock

    def settle(
        self,
        records: Sequence[Received],
        outcomes: Mapping[int, Outcome],
        logged: Mapping[int, DeliveryRecord],
        *,
        delete: bool = False,
    ) -> set[int]:
        """Apply `outcomes`, by position, and return the positions of the messages that stay in the queue.

        Those that leave it are deleted by the event source, or at once with `delete`.
        """
        staying: set[int] = set()
        back: dict[int, Retry | Wait] = {}
        for at, outcome in outcomes.items():
            if isinstance(outcome, Retry | Wait):
                back[at] = outcome
                staying.add(at)
            elif isinstance(outcome, Poison) and not self._set_aside(records[at], outcome):
                staying.add(at)
        if back:
            self._give_back(records, back, logged)
        leaving = [records[at].receipt for at in outcomes if at not in staying]
        if delete and leaving:
            self.delete(leaving)
        return staying

    def record(self, message_id: str, entry: DeliveryRecord) -> None:
        """Write one delivery record."""
        if self.delivery_log is not None:
            self.delivery_log.write({message_id: entry})

    def _give_back(
        self,
        records: Sequence[Received],
        outcomes: Mapping[int, Retry | Wait],
        logged: Mapping[int, DeliveryRecord],
    ) -> None:
        """Write the delivery records first: a redelivered message must find its own."""
        log = self.observability.log
        if self.delivery_log is not None:
            nothing = DeliveryRecord()
            self.delivery_log.write(
                {
                    records[at].message_id: logged.get(at, nothing).after_return(
                        records[at].receives,
                        tried=outcome.reason if isinstance(outcome, Retry) else None,
                        resume=outcome.resume if isinstance(outcome, Wait) else None,
                    )
                    for at, outcome in outcomes.items()
                }
            )
        waits = []
        now = self.clock.now().timestamp()
        for at, outcome in outcomes.items():
            after_s = min(max(outcome.after_s, records[at].least_wait(now)), LONGEST_WAIT_S)
            waits.append((records[at].receipt, after_s))
            known = log_fields(records[at].message_id, records[at].body)
            log.info(
                "message.given_back",
                extra={**known, "after_s": round(after_s, 3), "reason": outcome.reason},
            )
        try:
            self.source.give_back(waits)
        except TransientError:
            # The queue's own visibility time-out gives them back then, only later.
            log.warning("message.give_back_failed", exc_info=True)

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete received messages at once; those that cannot be deleted are redelivered."""
        try:
            self.source.delete(receipts)
        except TransientError:
            # They are deleted with the answer, or redelivered: their results are known by then.
            self.observability.log.warning("message.delete_failed", exc_info=True)

    def _set_aside(self, record: Received, outcome: Poison) -> bool:
        known = log_fields(record.message_id, record.body)
        self.observability.log.error("message.poison", extra={**known, "reason": outcome.reason})
        try:
            return not self.dead.send([record.body], reason=outcome.reason)
        except TransientError:
            return False


_PROBE: Final = b"\0" * 4096


class EnvironmentHealth:
    """File descriptors and disk of this execution environment.

    What leaks descriptors or fills the disk stays broken while Lambda keeps the environment warm, and a warm
    one gets the next messages too. So one that can open or write nothing more ends: the next has both again.
    """

    def __init__(self) -> None:
        """Find the folder for temporary files, which takes a file too."""
        self._folder = tempfile.gettempdir()

    def failing(self) -> str | None:
        """Return what there is no more of, as an errno's name, or None."""
        try:
            with tempfile.TemporaryFile(dir=self._folder) as file:
                file.write(_PROBE)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, "unknown")
        return None

    def end(self) -> NoReturn:
        """End the process at once, without clean-up, which might need the exhausted resource."""
        sys.stdout.flush()
        os._exit(1)


M = TypeVar("M", bound=Message)

_MARGIN_S = 2.0
"""Reserved of the function's time for its answer."""
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
        source: Queue,
        dead: Queue,
        observability: Observability,
        delivery_log: DeliveryLog | None = None,
        clock: Clock | None = None,
        health: EnvironmentHealth | None = None,
        ages: AgeNotes | None = None,
    ) -> None:
        """`source` is where records came from, `dead` its dead-letter queue."""
        self._ages = ages
        self._model = model
        self._handle = handle
        self._delivery_log = delivery_log
        self._observability = observability
        self._clock = clock or SystemClock()
        self._health = health or EnvironmentHealth()
        self._source = source
        self._settlement = Settlement(source, dead, delivery_log, observability, self._clock)

    def __call__(self, event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
        """Handle one event; the answer names the records that must stay in the queue.

        Raises Defect for records of another queue: a made-up event, or a mapping to the wrong function.
        """
        refuse_other_queues(event, [self._source])
        records = [received(record) for record in event.get("Records", [])]
        METER.begin([record.body for record in records])
        if self._ages is not None:
            self._ages.see([int(each.sent) for each in records if each.receives == 1 and each.sent != "0"])
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
            staying = self._settlement.settle(records, outcomes, logged)
        self._observability.flush()
        if staying:
            self._end_if_exhausted([each.receipt for at, each in enumerate(records) if at not in staying])
        METER.end(deleted=len(staying) < len(records))
        return {"batchItemFailures": [{"itemIdentifier": records[at].message_id} for at in sorted(staying)]}

    def _end_if_exhausted(self, leaving: Sequence[str]) -> None:
        """End an environment without file descriptors or disk; `leaving` would be deleted."""
        missing = self._health.failing()
        if missing is None:
            return
        self._observability.log.error("environment.exhausted", extra={"missing": missing})
        if leaving:
            self._settlement.delete(leaving)
        self._health.end()

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
            resume=entry.resume,
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
        """Handle one suspect, after all other messages were deleted or returned."""
        # The one with the most receives, so that each of many is handled before its receives are used up.
        chosen, *others = sorted(suspects, key=lambda at: -records[at].receives)
        outcomes |= {at: Wait(n * _SUSPECTS_APART_S, "suspect") for n, at in enumerate(others, 1)}
        staying = self._settlement.settle(records, outcomes, logged, delete=True)
        delivery, record, entry = deliveries[chosen], records[chosen], logged[chosen]
        left = delivery.deadline + _MARGIN_S / 2 - self._clock.monotonic()
        with SuspectTry(self._settlement.record, record.message_id, entry, after_s=left):
            outcome = self._run({chosen: delivery})
        return staying | self._settlement.settle(records, outcome, logged)
