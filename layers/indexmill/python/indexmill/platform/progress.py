"""How far the work inside a stage is: told by workers, shown to people, no ground for any decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

LONG_CHUNKS: Final = 256
"""A document with more chunks is long work; the progress of a shorter one is neither written nor read."""


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """Where one attempt of one job stands."""

    attempt: int
    chunks_total: int
    chunks_done: int
    bytes: int
    """Of the text that is done."""


class ProgressBoard(Protocol):
    """Keeps each job's progress for a day. Neither call raises: a board that is away shows nothing."""

    def put(self, job_id: str, progress: WorkProgress) -> None:
        """Show `progress` in place of what was there."""
        ...

    def get(self, job_id: str) -> WorkProgress | None:
        """Return what was shown last, None when there is nothing or the board is away."""
        ...
