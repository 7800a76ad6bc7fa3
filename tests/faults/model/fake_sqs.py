"""Fake SQS queue: at-least-once delivery in any order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_numbers = itertools.count(1)


@dataclass
class Message:
    """One message in the queue."""

    body: str
    id: str = field(default_factory=lambda: f"sqs-{next(_numbers)}")
    received: int = 0


def dlq_name(name: str) -> str:
    """Return the name of a queue's dead-letter queue."""
    return f"{name}-dead"


@dataclass
class FakeQueue:
    """One queue. A message stays until its consumer deletes it."""

    name: str
    messages: list[Message] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    sent: list[Message] = field(default_factory=list)
    """Every message that was ever sent here."""

    def send(self, bodies: Sequence[str], *_: Any, **__: Any) -> list[int]:
        """Append all bodies in sorted order: the order of rows from a database is not deterministic."""
        new = [Message(body) for body in sorted(bodies)]
        self.messages.extend(new)
        self.sent.extend(new)
        return []

    def is_at(self, arn: str) -> bool:
        """Return whether the ARN names this queue."""
        return arn.endswith(f":{self.name}")

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        """Do nothing: a message that was not deleted may be delivered at any time."""

    def delete(self, receipt_handles: Sequence[str]) -> None:
        """Delete the messages."""
        self.deleted.update(receipt_handles)
        self.messages = [each for each in self.messages if each.id not in self.deleted]

    def event(self, picked: Sequence[Message]) -> dict[str, Any]:
        """Return the event that a function gets for these messages, which counts as a receive."""
        records = []
        for message in picked:
            message.received += 1
            records.append(
                {
                    "messageId": message.id,
                    "receiptHandle": message.id,
                    "body": message.body,
                    "attributes": {"ApproximateReceiveCount": str(message.received)},
                    "eventSourceARN": f"arn:aws:sqs:eu-west-1:000000000000:{self.name}",
                }
            )
        return {"Records": records}
