"""Queue port: sends messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

MESSAGE_BYTES: Final = 1_048_576
"""The largest message that a queue takes."""
REASON: Final = "reason"
"""Message attribute of a dead letter: why a consumer set it aside."""


class Queue(Protocol):
    """One queue that we send to."""

    def send(self, bodies: Sequence[str], groups: Sequence[str] = (), *, reason: str = "") -> list[int]:
        """Send the bodies, ten and at most 1 MiB a call, and return the positions that were NOT accepted.

        `groups` names, beside each body, whose it is: one's backlog does not hold back the others' messages.
        `reason` says why they are sent to a dead-letter queue, in the attribute REASON.
        Raises TransientError(queue_unavailable) when nothing could be sent at all.
        """
        ...


class SourceQueue(Protocol):
    """The queue that messages came from. What changes it raises TransientError(queue_unavailable)."""

    def is_at(self, arn: str) -> bool:
        """Return whether this queue has that ARN."""
        ...

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        """Let received messages, named by their receipts, be seen again after so many seconds each."""
        ...

    def delete(self, receipts: Sequence[str]) -> None:
        """Delete received messages; deleting one twice is harmless."""
        ...
