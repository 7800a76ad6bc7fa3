"""What the model drives: the product's own use cases, or the first design's orchestrator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from tests.faults.model.fuse import Fuse
from tests.faults.model.line import Line, Message

Kind = Literal["new", "shaky", "same", "changed", "twice"]
"""What is submitted: a new page, one that does not answer at once, or the last one: forced, forced with
another text, or not forced."""


def dead_line(name: str) -> str:
    """Return the name of a queue's dead letters."""
    return f"{name}-dead"


class System(Protocol):
    """A pipeline whose every step may be repeated, reordered or cut off."""

    fuse: Fuse
    lines: dict[str, Line]
    verbs: frozenset[str]
    """Which of lose, bury, cancel, retry and replay it knows."""

    def submit(self, kind: Kind) -> None:
        """Submit one page. Killed: nobody was told that it was accepted."""
        ...

    def handle(self, name: str, picked: Sequence[Message]) -> set[str]:
        """Let the consumer of a queue work on the messages; return the ids of those that may leave."""
        ...

    def lose(self, name: str, message: Message) -> None:
        """Let a message of a queue vanish."""
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

    def replay(self, job_id: str, *, stored: bool) -> None:
        """Do a job again as a new one, if it can be, by what was stored or by what is there now."""
        ...

    def jobs(self) -> dict[str, str]:
        """Return the status of each job there is, by id."""
        ...

    def stranded(self) -> list[str]:
        """Return which jobs wait for something that nothing will bring, as far as that can be told."""
        ...

    def wrongs(self) -> list[str]:
        """Return what is wrong with the jobs, after everything came to rest."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...
