"""Progress of a group's long documents, reported while they are embedded."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import partial

from indexmill.embedding.documents import Work
from indexmill.embedding.slices import OnStep
from indexmill.platform.progress import LONG_CHUNKS, ProgressBoard, WorkProgress


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
