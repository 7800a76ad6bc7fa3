"""Embedding in the Orchestrator: message with a document's chunks, result of their publish."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from indexmill.contracts.content import PageFacts
from indexmill.contracts.cost import JobChunks
from indexmill.contracts.job import EmbeddedResult
from indexmill.contracts.messages import Chunked, Embedded, EmbedResult, EmbedTask, StageResult, read_kept
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobState

TASK: Final = EmbedTask


def next_message(message_id: str, state: JobState, before: StageResult) -> EmbedTask:
    """Return the message with the chunks, or where they are stored, and a fresh generation."""
    chunked = before.output if isinstance(before.output, Chunked) else Chunked()
    return EmbedTask(
        message_id=message_id,
        job_id=state.job_id,
        attempt=state.attempt,
        request_id=before.request_id,
        target=state.target,
        generation=state.generation,
        title=state.title,
        content_sha256=state.content_sha256,
        chunks=chunked.chunks,
        chunks_ref=chunked.chunks_ref,
        chunk_count=chunked.chunk_count,
        chunker=chunked.chunker,
        source=chunked.source,
        page=None if state.page is None else PageFacts.model_validate(state.page),
        metadata=state.metadata,
    )


def withdrawal(message_id: str, state: JobState, before: StageResult) -> EmbedTask:
    """Return the message that takes away what is published of a document."""
    empty = {"chunks": [], "chunk_count": 0, "withdraws": True}
    return next_message(message_id, state, before).model_copy(update=empty)


def renew(state: JobState, payload: str, message_id: str, attempt: int, generation: int) -> EmbedTask:
    """Return the kept message with new ids, that generation and the job's target of today."""
    ids: dict[str, Any] = {"message_id": message_id, "attempt": attempt, "target": state.target}
    if state.job_type == "delete":
        # What was published since must stay.
        return read_kept(EmbedTask, payload, **ids)
    return read_kept(EmbedTask, payload, **ids, generation=generation)


def erasure(message_id: str, state: JobState, documents: list[str], generation: int) -> EmbedTask:
    """Return the message that erases documents up to a generation."""
    return EmbedTask(
        message_id=message_id,
        job_id=state.job_id,
        attempt=state.attempt,
        target=state.target,
        generation=generation,
        chunks=[],
        chunk_count=0,
        erases=documents,
    )


def facts(state: JobState, result: StageResult) -> Change:
    """Return the number of chunks, the model, what search sees, and whether the generation was fenced out."""
    embedded = result.embedded if isinstance(result, EmbedResult) else None
    if embedded is None:
        return Change()
    found: dict[str, Any] = {"model": embedded.model, "dimension": embedded.dimension}
    # What a duplicate takes away is no version to search.
    if embedded.searchable_at is not None and embedded.chunk_count:
        total, new = embedded.chunk_count, embedded.embedded
        chunks = JobChunks(total=total, reused=total - new, embedded=new, removed=embedded.removed)
        found |= version_facts(embedded.searchable_at, state.issued) | {"chunks": chunks.model_dump()}
    return Change(
        chunk_count=embedded.chunk_count,
        facts=found,
        fenced=not embedded.published and not embedded.superseded,
    )


def version_facts(searchable_at: datetime, generation: int | None) -> dict[str, Any]:
    """Return what a job shows of the version that it published."""
    return {"searchable_at": searchable_at.isoformat(), "generation": generation}


def from_http(_state: JobState, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of `{chunk_count, model?}`."""
    given = EmbeddedResult.model_validate(result)
    count = given.chunk_count
    embedded = Embedded(chunk_count=count, embedded=count, model=given.model, dimension=0, published=True)
    return {"embedded": embedded}
