"""What a proxy can do to the bytes that pass it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Effect = Literal["latency", "reset", "blackhole", "limit_data", "slicer", "swallow_reply", "down"]
"""latency: each piece comes `seconds` late. reset: connections are cut, again and again while it lasts.
blackhole: nothing passes, nothing is closed. limit_data: an answer ends after `size` bytes. slicer: answers
come in pieces of `size` bytes, `seconds` apart. swallow_reply: the other side gets a request with `pattern`
and does it, and the connection is cut in place of its answer. down: as if nobody listened."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One ailment of a connection."""

    effect: Effect
    seconds: float = 0.0
    size: int = 0
    pattern: str = ""
    """Plain text in what is sent."""
    times: int | None = None
    """How many connections it befalls (swallow_reply, limit_data); None for all."""

    def document(self) -> dict[str, Any]:
        """The toxic as JSON."""
        return asdict(self)
