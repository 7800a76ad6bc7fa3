"""Settlement of received messages: returned to the queue, dead-lettered or deleted, and recorded."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from indexmill.contracts.errors import TransientError
from indexmill.platform.consumer.deliveries import LONGEST_WAIT_S, Outcome, Poison, Retry, Wait
from indexmill.platform.consumer.delivery_log import DeliveryLog, DeliveryRecord
from indexmill.platform.observability import Observability
from indexmill.platform.queues import Queue
from indexmill.platform.time.clock import Clock

_PATIENT_AFTER: Final = 20
"""Receives after which waits begin to grow."""
_SHARE: Final = (0.2, 0.25)
"""A wait's share of the time that a message has been coming back; drawn, so that many come apart."""


class Received(NamedTuple):
    """A record as we use it; a tuple, since one is made per message."""

    message_id: str
    receipt: str
    body: str
    receives: int
    """How often it was received, this time included."""
    first_received: str
    """Milliseconds since 1970; "0" when the queue does not tell."""

    def log_fields(self) -> dict[str, str]:
        """Return what a log line names it by: its id, and its job's if it tells one."""
        fields = {"sqs_message_id": self.message_id}
        try:
            job_id = json.loads(self.body)["job_id"]
        except (ValueError, TypeError, KeyError):
            return fields
        return fields | {"job_id": job_id} if isinstance(job_id, str) else fields

    def least_wait(self, now: float) -> float:
        """Return the seconds that it waits at least when it is given back.

        Waiting costs receives, and a queue allows a hundred. With waits that grow with the outage a message
        comes back fewer times than that in all the days that its queue keeps it.
        """
        since = int(self.first_received) / 1000
        if self.receives <= _PATIENT_AFTER or not since:
            return 0.0
        # Spreads messages; nothing secret depends on it.
        return random.uniform(*_SHARE) * max(0.0, now - since)  # noqa: S311


def received(record: dict[str, Any]) -> Received:
    """Read one record of a Lambda event."""
    attributes = record.get("attributes", {})
    return Received(
        record["messageId"],
        record["receiptHandle"],
        record["body"],
        int(attributes.get("ApproximateReceiveCount", 1)),
        attributes.get("ApproximateFirstReceiveTimestamp", "0"),
    )


class SourceQueue(Protocol):
    """The queue that messages came from. Both calls raise TransientError(queue_unavailable)."""

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        """Let received messages, named by their receipts, be seen again after so many seconds each."""
        ...

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete received messages; deleting one twice is harmless."""
        ...


class LambdaContext(Protocol):
    """The used part of Lambda's context object."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds until the function is stopped."""
        ...


@dataclass(frozen=True, slots=True)
class Settling:
    """Applies outcomes to the queue that messages came from."""

    source: SourceQueue
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
        """Note first: a message that is seen again must find its entry."""
        log = self.observability.log
        if self.delivery_log is not None:
            nothing = DeliveryRecord()
            self.delivery_log.write(
                {
                    records[at].message_id: logged.get(at, nothing).after_return(
                        records[at].receives, tried=outcome.reason if isinstance(outcome, Retry) else None
                    )
                    for at, outcome in outcomes.items()
                }
            )
        waits = []
        now = self.clock.now().timestamp()
        for at, outcome in outcomes.items():
            after_s = min(max(outcome.after_s, records[at].least_wait(now)), LONGEST_WAIT_S)
            waits.append((records[at].receipt, after_s))
            fields = {**records[at].log_fields(), "after_s": round(after_s, 3)}
            log.info("message.given_back", extra={**fields, "reason": outcome.reason})
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
        self.observability.log.error(
            "message.poison", extra={**record.log_fields(), "reason": outcome.reason}
        )
        try:
            return not self.dead.send([record.body])
        except TransientError:
            return False
