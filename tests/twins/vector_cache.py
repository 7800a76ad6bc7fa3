"""The vector cache in memory."""

from __future__ import annotations

from collections.abc import Mapping

from indexmill.embedding.ports import Space, Vector


class InMemoryVectorCache:
    """Keeps vectors by space and message; `unavailable` loses what is put and knows nothing."""

    def __init__(self) -> None:
        """Empty."""
        self.kept: dict[tuple[Space, str], dict[str, Vector]] = {}
        self.unavailable = False

    def get(self, space: Space, message_id: str) -> dict[str, Vector]:
        """Return what was put."""
        return {} if self.unavailable else dict(self.kept.get((space, message_id), {}))

    def put(self, space: Space, message_id: str, vectors: Mapping[str, Vector]) -> None:
        """Replace what is kept."""
        if not self.unavailable:
            self.kept[space, message_id] = dict(vectors)
