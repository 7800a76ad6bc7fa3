"""ChunkCounts in memory, of one endless day."""

from __future__ import annotations

from collections import Counter

from indexmill.contracts.errors import ErrorCode, TransientError


class InMemoryChunkCounts:
    """Counts by caller; `unavailable` fails every call."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.chunks: Counter[str] = Counter()
        self.unavailable = False

    def add(self, caller_id: str, chunks: int, most: int) -> bool:
        """Add chunks; False when the sum would be more than `most`."""
        if self.unavailable:
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "The database cannot be reached.")
        if chunks > 0 and self.chunks[caller_id] + chunks > most:
            return False
        self.chunks[caller_id] = max(0, self.chunks[caller_id] + chunks)
        return True
