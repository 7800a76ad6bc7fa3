"""An embedder without a model: a text's vector is drawn from its digest."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence

from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError
from indexmill.embedding.ports import Space, Vector


class HashEmbedder:
    """The same text always gets the same vector of length 1; different texts get unrelated ones.

    `fail_next` holds errors that the coming calls raise, one each; a text that contains a key of `fail_on`
    makes its call raise that error every time. `calls` is what was asked for.
    """

    def __init__(self, dimension: int = 8, model: str = "hash") -> None:
        """Without faults."""
        self._space = Space(model, dimension)
        self.calls: list[list[str]] = []
        self.timeouts: list[float] = []
        self.fail_next: list[IndexmillError] = []
        self.fail_on: dict[str, IndexmillError] = {}

    @property
    def space(self) -> Space:
        """The space of every vector this embedder returns."""
        return self._space

    def embed(self, texts: Sequence[str], *, timeout_s: float) -> list[Vector]:
        """Return one vector per text, in order."""
        self.calls.append(list(texts))
        self.timeouts.append(timeout_s)
        if self.fail_next:
            raise self.fail_next.pop(0)
        for part, error in self.fail_on.items():
            if any(part in text for text in texts):
                raise error
        if not all(texts):
            raise PermanentError(ErrorCode.EMBEDDING_REJECTED, "An empty text has no vector.")
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Vector:
        draw = random.Random(hashlib.sha256(text.encode()).digest())
        numbers = [draw.gauss(0, 1) for _ in range(self._space.dimension)]
        length = sum(number * number for number in numbers) ** 0.5
        return [number / length for number in numbers]
