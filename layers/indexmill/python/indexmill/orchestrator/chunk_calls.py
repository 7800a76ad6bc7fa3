"""Outbox rows as calls of Chunking: which go together, and what each one's answer means to its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.messages import Chunked, ChunkItem, StageFailure, StageResult
from indexmill.orchestrator.ports import OutboxRow

CALLING_S: Final = 20.0
"""No call is begun later in a turn: the last one may still run into its time-out before its caller's ends."""
_CALL_BYTES: Final = 4_000_000
"""Lambda takes 6 MB in one direct invoke; documents are grouped well below that."""


@dataclass(slots=True)
class Turn:
    """What one run of rows, or one sweep, has found out: Chunking that is away is not called again."""

    until: float
    """On the measuring clock: when the time for calls is over."""
    away: str | None = None
    """Code of the error by which that was found out."""
    waiting: int = 0
    """Calls that are left for the next turn because of it."""


def grouped(rows: Sequence[OutboxRow]) -> list[list[OutboxRow]]:
    """Return rows by call: together while nothing speaks against it, else each one alone, and those last.

    Of the rows of a call that came to no good end one is to blame, and only alone it is told from the others.
    """
    groups: list[list[OutboxRow]] = []
    size = 0
    for row in rows:
        if row.tries:
            continue
        if not groups or size + len(row.payload) > _CALL_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += len(row.payload)
    suspects = sorted((row for row in rows if row.tries), key=lambda row: row.tries)
    return groups + [[row] for row in suspects]


def as_item(row: OutboxRow) -> ChunkItem:
    """Return the document of a row; the row knows the job also where its payload is of before items did."""
    return ChunkItem.model_validate_json(row.payload).model_copy(update={"job_id": row.job_id})


def as_result(row: OutboxRow, document: ChunkItem, made: Chunked) -> StageResult:
    """Return the report that an answer stands for."""
    return StageResult(
        message_id=f"{row.id}:result",
        job_id=row.job_id,
        attempt=row.attempt,
        request_id=document.request_id,
        stage="chunking",
        status="failed" if made.failure else "success",
        chunked=None if made.failure else made,
        failure=made.failure,
    )


def exhausted(row: OutboxRow, code: str) -> StageFailure:
    """Return the failure of a row that was tried often enough."""
    return StageFailure(
        code=ErrorCode.MAX_RETRIES_EXCEEDED,
        message=f"{row.stage.capitalize()} failed after {row.tries} retries",
        cause=code,
        tries=row.tries + 1,
    )
