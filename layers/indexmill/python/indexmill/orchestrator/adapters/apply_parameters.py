"""A batch's changes as the columns that the statements take."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb
from pydantic import BaseModel

from indexmill.orchestrator.changes import Ledger


def apply_parameters(ledger: Ledger) -> dict[str, Any]:
    """Return what APPLY takes."""
    finals = list(ledger.finals.values())
    moves = ledger.moves
    rows = [row for move in moves for row in move.change.outbox]
    return {
        "job_ids": [final.job_id for final in finals],
        "statuses": [final.status.value for final in finals],
        "stages": [final.error.stage if final.error else None for final in finals],
        "errors": [_json(final.error) for final in finals],
        "titles": [final.title for final in finals],
        "counts": [final.chunk_count for final in finals],
        "generations": [final.generation for final in finals],
        "raw_refs": [_json(final.stored) for final in finals],
        "facts": [Jsonb(final.facts) if final.facts else None for final in finals],
        "h_jobs": [move.job_id for move in moves],
        "h_attempts": [move.attempt for move in moves],
        "h_from": [move.from_status.value for move in moves],
        "h_to": [move.to_status.value for move in moves],
        "h_causes": [move.cause for move in moves],
        "h_details": [_json(move.change.error) for move in moves],
        "h_tries": [move.result.tries for move in moves],
        "h_workers": [move.result.worker for move in moves],
        "h_elapsed": [move.result.elapsed_ms for move in moves],
        "o_ids": [row.id for row in rows],
        "o_jobs": [row.job_id for row in rows],
        "o_attempts": [row.attempt for row in rows],
        "o_stages": [row.stage for row in rows],
        "o_kinds": [row.kind for row in rows],
        "o_payloads": [row.payload for row in rows],
    }


def note_parameters(ledger: Ledger) -> tuple[list[Any], ...]:
    """Return what NOTE takes."""
    notes = list(ledger.notes.items())
    return (
        [job_id for job_id, _ in notes],
        [note.tries for _, note in notes],
        [note.next_retry_at for _, note in notes],
        [note.retry_in_s for _, note in notes],
        [note.cause for _, note in notes],
    )


def _json(model: BaseModel | None) -> Jsonb | None:
    return Jsonb(model.model_dump(mode="json", exclude_none=True)) if model else None
