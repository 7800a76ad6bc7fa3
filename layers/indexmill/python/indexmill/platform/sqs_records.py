"""One record of an SQS event."""

from __future__ import annotations

import json
import random
from typing import Any, Final, NamedTuple

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
