"""What the model's product stands on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.embedding.ports import VectorIndex
from indexmill.orchestrator.job_store import JobStore
from indexmill.testing.clock import FrozenClock
from tests.faults.model.ends import History
from tests.faults.model.line import Line
from tests.faults.model.places import Work


@dataclass(frozen=True)
class Ground:
    """What differs between the twins and Postgres. What is asked for is asked for one caller."""

    store: JobStore
    view: Any
    """The sweeper's, who admits everybody as well."""
    index: VectorIndex
    clock: FrozenClock
    age: Callable[[int], None]
    """Let seconds pass in the store."""
    jobs: Callable[[str], dict[str, str]]
    """Status by job id."""
    history: Callable[[str], History]
    """Transitions in order."""
    outside: Callable[[str], set[Work]]
    """Work of jobs at a stage whose message is not among those that are still to be sent."""
    close: Callable[[], None]


@dataclass(frozen=True)
class Pile:
    """What the sweeper counts of a queue: its dead letters as well."""

    lines: Sequence[Line]

    def messages(self) -> int:
        """Return how many there are."""
        return sum(len(line.messages) for line in self.lines)
