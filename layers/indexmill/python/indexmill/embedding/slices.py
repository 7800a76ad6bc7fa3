"""Vectors for many texts, a request at a time, with progress; unfinished work is stored and resumed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from indexmill.contracts.errors import ErrorCode, IndexmillError, TransientError
from indexmill.embedding.documents import Work
from indexmill.embedding.ports import Embedder, Vector
from indexmill.platform.consumer.deliveries import RecordTimes
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard, WorkProgress
from indexmill.platform.time import Clock

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
        self.times.begin(timeout_s)
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


def progress_callback(
    group: Sequence[Work], texts: Mapping[str, str], board: ProgressBoard | None
) -> OnStep | None:
    """Return a callback that reports to `board` after each step; None for a group without long documents.

    `texts` is what has to be embedded, by chunk id; every other chunk is done already.
    """
    long = [work for work in group if work.task.job_id and len(work.chunks) > LONG_CHUNKS]
    return partial(_report, board, long, texts) if board is not None and long else None


def _report(
    board: ProgressBoard, long: Sequence[Work], texts: Mapping[str, str], embedded: Container[str]
) -> None:
    for work in long:
        pairs = zip(work.ids, work.chunks, strict=True)
        done = [chunk for key, chunk in pairs if key not in texts or texts[key] in embedded]
        size = sum(len(chunk.text.encode()) for chunk in done)
        progress = WorkProgress(work.task.attempt, len(work.chunks), len(done), size)
        board.put(work.task.job_id or "", progress)
