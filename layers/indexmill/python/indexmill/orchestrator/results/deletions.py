"""Deletions, part by part: what the index reported as erased goes here too, and the next part follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.messages import EmbedTask, read_kept, write
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.stages.embedding import erasure
from indexmill.orchestrator.store.deletions import Counts, ErasedRows
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.rows import JobState, OutboxRow

PART: Final = 100
"""Documents that one message erases."""
MOST_SHOWN: Final = 1_000
"""Documents that a report names."""
STAGE: Final = STAGES[-1].name


def erased_part(tx: JobsTx, state: JobState, erased: Erased, message_id: str) -> list[OutboxRow]:
    """Delete the rows of the documents that the index erased; return the message for the next ones.

    Without further ones the job waits for the sweeper, which signs its report.
    """
    deletion, payload = tx.deletion(state.job_id), tx.kept_payloads(state.job_id).get(STAGE)
    if deletion is None or payload is None:
        return []
    task = read_kept(EmbedTask, payload)
    rows = tx.erase_documents(deletion, state.target.corpus_key, task.erases or [])
    shown = deletion.removed.get("documents", {}).get("before", 0) < MOST_SHOWN
    index = erased.model_dump()
    left = index.pop("left")
    # What is left is of no one kind: it is none, or the report says that the deletion is not whole.
    seen = {kind: {"before": count, "after": left} for kind, count in index.items()}
    tx.keep_erased(
        deletion,
        ErasedRows(
            added(deletion.removed, added(rows.removed, seen)),
            added(deletion.referred, rows.referred),
            [each for each in rows.objects if shown or not each.startswith("document:")],
        ),
    )
    if deletion.whole:
        documents = tx.to_erase_of_corpus(state.target.corpus_key, deletion.generation, PART)
    else:
        documents = tx.to_erase(state.job_id, PART)
    if not documents:
        if deletion.whole:
            tx.erase_corpus(state.target.corpus_key, state.job_id)
        tx.end_erasing(state.job_id)
        return []
    row = first_part(state, documents, deletion.generation, message_id)
    tx.redispatch(row, None)
    # The bound of the loop alarm is by jobs that were admitted: each part counts as one.
    return [replace(row, admits=True)]


def first_part(state: JobState, documents: list[str], generation: int, message_id: str) -> OutboxRow:
    """Return the message that erases the documents."""
    body = write(erasure(message_id, state, documents, generation))
    return OutboxRow(message_id, state.job_id, state.attempt, STAGE, body, caller_id=state.target.caller_id)


def added(sums: Mapping[str, Mapping[str, int]], more: Mapping[str, Mapping[str, int]]) -> Counts:
    """Return both counts together."""
    nothing = {"before": 0, "after": 0}
    return {
        kind: {when: sums.get(kind, nothing)[when] + more.get(kind, nothing)[when] for when in nothing}
        for kind in {**sums, **more}
    }
