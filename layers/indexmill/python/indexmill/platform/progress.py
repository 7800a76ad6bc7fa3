"""Progress inside a stage: written by workers, shown to people, never used for a decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

LONG_CHUNKS: Final = 256
"""A document with more chunks is long work; the progress of a shorter one is neither written nor read."""


@dataclass(frozen=True, slots=True)
class WorkProgress:
    """Progress of one attempt of one job."""

    attempt: int
    chunks_total: int
    chunks_done: int
    bytes: int
    """Of the text that is done."""


class ProgressBoard(Protocol):
    """Keeps each job's progress for a day. Neither call raises: an unavailable board shows nothing."""

    def put(self, job_id: str, progress: WorkProgress) -> None:
        """Show `progress` in place of what was there."""
        ...

    def get(self, job_id: str) -> WorkProgress | None:
        """Return what was shown last, None when there is nothing or the board is unavailable."""
        ...
