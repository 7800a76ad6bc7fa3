"""What the model drives: the product's own use cases, or the first design's orchestrator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tests.faults.model.fuse import Fuse
from tests.faults.model.line import Line, Message


class System(Protocol):
    """A pipeline whose every step may be repeated, reordered or cut off."""

    fuse: Fuse
    lines: Mapping[str, Line]
    verbs: frozenset[str]
    """Which of lose, cancel and retry it knows."""

    def submit(self) -> None:
        """Submit one page. Killed: nobody was told that it was accepted."""
        ...

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Let the consumer of a queue work on the messages; return the ids of those that may leave."""
        ...

    def tick(self, seconds: int) -> None:
        """Let time pass, and run what runs by the clock."""
        ...

    def cancel(self, job_id: str) -> None:
        """Cancel a job, if it can be."""
        ...

    def retry(self, job_id: str) -> None:
        """Retry a job, if it can be."""
        ...

    def jobs(self) -> dict[str, str]:
        """Return the status of each job there is, by id."""
        ...

    def wrongs(self) -> list[str]:
        """Return what is wrong with the jobs, after everything came to rest."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
