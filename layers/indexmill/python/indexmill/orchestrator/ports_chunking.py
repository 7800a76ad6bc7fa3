"""The Chunking service as the Orchestrator calls it, and how it may fail to answer."""

from __future__ import annotations

from typing import Protocol

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.messages import ChunkCall, ChunkReply


class ChunkerAway(TransientError):
    """Chunking takes no calls at all now: that says nothing about the documents of this one."""

    def __init__(self, what: str) -> None:
        """`what` ends the sentence that begins with the service."""
        super().__init__(ErrorCode.CHUNKING_UNAVAILABLE, f"The Chunking service {what}.", retry_after=5)


class Chunker(Protocol):
    """The Chunking service, called directly."""

    def chunk(self, call: ChunkCall) -> ChunkReply:
        """Split the documents; one reply item per call item.

        Raises ChunkerAway when nobody's call is taken, and another TransientError(chunking_unavailable) when
        this call was taken and came to no good end.
        """
        ...
