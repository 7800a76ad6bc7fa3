"""Vectors for many texts, a request at a time; unfinished work is stored and resumed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.embedding.ports import Embedder, Vector
from indexmill.platform.consumer.record_times import RecordTimes
from indexmill.platform.time.clock import Clock

SLICE: Final = 256
"""Texts per step: as many as one request carries."""
_GUESS_S: Final = 2.0

OnStep = Callable[[Container[str]], None]


class OutOfTime(TransientError):
    """The invocation has no time for the rest."""

    def __init__(self) -> None:
        """No fault of the endpoint's or the document's."""
        super().__init__(ErrorCode.DEADLINE_EXCEEDED, "The rest is embedded later.")


def _times() -> RecordTimes:
    return RecordTimes(_GUESS_S)


@dataclass(frozen=True, slots=True)
class Slices:
    """Embeds as much as there is time for."""

    embedder: Embedder
    clock: Clock
    times: RecordTimes = field(default_factory=_times)

    def embed(
        self, texts: Mapping[str, str], *, timeout_s: float, on_step: OnStep | None = None
    ) -> tuple[dict[str, Vector], IndexmillError | None]:
        """Return vectors by key, each different text embedded once, and why they are not all there.

        `on_step` gets the texts that are done after each step but the last, behind which the end follows.
        """
        deadline = self.clock.monotonic() + timeout_s
        self.times.began(timeout_s)
        unique = list(dict.fromkeys(texts.values()))
        by_text: dict[str, Vector] = {}
        stopped: IndexmillError | None = None
        for start in range(0, len(unique), SLICE):
            part, began = unique[start : start + SLICE], self.clock.monotonic()
            if start and not self.times.suffices(deadline - began):
                stopped = OutOfTime()
                break
            try:
                vectors = self.embedder.embed(part, timeout_s=deadline - began)
            except IndexmillError as error:
                stopped = error
                break
            self.times.add(self.clock.monotonic() - began)
            by_text.update(zip(part, vectors, strict=True))
            if on_step is not None and len(by_text) < len(unique):
                on_step(by_text)
        return {key: by_text[text] for key, text in texts.items() if text in by_text}, stopped
