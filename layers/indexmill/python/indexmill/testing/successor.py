"""What is handed over, in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from indexmill.contracts.errors import ErrorCode, TransientError


@dataclass
class InMemorySuccessor:
    """Successor that goes on at once, or when a test says so."""

    run: Callable[[Sequence[str]], object] | None = None
    """What it does with ids of rows; None keeps them in `handed`."""
    away: bool = False
    handed: list[str] = field(default_factory=list)

    def go_on(self, message_ids: Sequence[str]) -> None:
        """Take the rows."""
        if self.away:
            raise TransientError(ErrorCode.QUEUE_UNAVAILABLE, "The work cannot be handed over.")
        self.handed += message_ids
        if self.run is not None:
            self.run(message_ids)
