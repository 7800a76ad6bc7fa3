"""A queue in memory."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.aws.sqs_queue import Queue

QUEUE_ARN = "arn:aws:sqs:eu-west-1:000000000000:queue"


class InMemoryQueue(Queue):
    """Keeps sent messages. `unavailable` fails every call; `refuse`: positions that the next send loses."""

    def __init__(self) -> None:
        """Empty and reachable."""
        self.bodies: list[str] = []
        self.groups: list[str] = []
        self.reasons: list[str] = []
        self.given_back: list[tuple[str, float]] = []
        self.deleted: list[str] = []
        self.unavailable = False
        self.refuse: set[int] = set()

    def send(self, bodies: Sequence[str], groups: Sequence[str] = (), *, reason: str = "") -> list[int]:
        """Take the bodies, except those that were to be refused."""
        self._reach()
        self.reasons.extend(reason for _ in bodies)
        refused, self.refuse = sorted(self.refuse), set()
        self.groups.extend(group for at, group in enumerate(groups) if at not in refused)
        self.bodies.extend(body for at, body in enumerate(bodies) if at not in refused)
        return refused

    def is_at(self, arn: str) -> bool:
        """Return whether it is the queue of `sqs_event`."""
        return arn == QUEUE_ARN

    def give_back(self, waits: Sequence[tuple[str, float]]) -> None:
        """Note who gave what back."""
        self._reach()
        self.given_back.extend(waits)

    def delete(self, receipts: Sequence[str]) -> None:
        """Note what was deleted before its batch was finished."""
        self._reach()
        self.deleted.extend(receipts)

    def _reach(self) -> None:
        if self.unavailable:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The queue cannot be reached.")
