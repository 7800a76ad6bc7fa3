"""Toxics: network faults that a proxy applies to its connections."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Effect = Literal["latency", "reset", "blackhole", "limit_data", "slicer", "swallow_reply", "down"]
"""latency: each piece arrives `seconds` late. reset: connections are reset for as long as it is active.
blackhole: nothing passes, nothing is closed. limit_data: a response ends after `size` bytes. slicer:
responses arrive in pieces of `size` bytes, `seconds` apart. swallow_reply: the server gets a request with
`pattern` and executes it, and the connection is reset instead of its response. down: connections are refused.
"""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One network fault."""

    effect: Effect
    seconds: float = 0.0
    size: int = 0
    pattern: str = ""
    """Plain text in the request."""
    times: int | None = None
    """Number of connections that are hit (swallow_reply, limit_data); None for all."""

    def document(self) -> dict[str, Any]:
        """Return the toxic as JSON."""
        return asdict(self)
