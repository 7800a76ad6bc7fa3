"""The wire format of a job's stream: server-sent events, as browsers read them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from indexmill.contracts.job import Job

_ID: Final = re.compile(r"(\d{1,18})\.(\d{1,18})\.(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a client in a job's events; an event's `id`, which it sends back as Last-Event-ID."""

    seq: int
    """Of the last event of its history."""
    changed: int
    """Epoch millisecond of the job's last change; a wait changes a job without being an event."""
    chunks_done: int

    @classmethod
    def of(cls, seq: int, job: Job) -> Self:
        """Return the position of who has seen `job`, to which event `seq` led."""
        return cls(seq, int(job.updated_at.timestamp() * 1000), job.progress.chunks_done or 0)

    @classmethod
    def parse(cls, text: str | None) -> Self | None:
        """Read a Last-Event-ID; None when there is none, or it is none of ours."""
        found = _ID.fullmatch(text or "")
        return cls(*map(int, found.groups())) if found else None

    def knows(self, now: Self) -> bool:
        """Return whether `now`, after the same event, has nothing unseen; progress may decrease."""
        return self.changed == now.changed and self.chunks_done >= now.chunks_done

    def __str__(self) -> str:
        return f"{self.seq}.{self.changed}.{self.chunks_done}"


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: the job as `GET` shows it, at one position."""

    at: Position
    job: Job


def written(frames: Sequence[Frame], *, retry_ms: int) -> str:
    """Return the frames as text; the client asks again `retry_ms` after the answer's end."""
    events = [f"id: {frame.at}\ndata: {frame.job.model_dump_json()}\n\n" for frame in frames]
    return "".join((f"retry: {retry_ms}\n", *events))


def silence(reason: str, *, retry_ms: int) -> str:
    """Return an answer without an event, which a client takes as a reason to ask again."""
    return f": {reason}\nretry: {retry_ms}\n\n"
