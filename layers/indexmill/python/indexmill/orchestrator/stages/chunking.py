"""Chunking in the Orchestrator: message with a document's text, result with its chunks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from indexmill.contracts.content import CHUNK_LIST, Chunk, ChunkSettings, Document
from indexmill.contracts.job import ChunkedResult
from indexmill.contracts.messages import Chunked, ChunkResult, ChunkTask, StageResult, read_kept
from indexmill.orchestrator.stages.scraping import text_digest
from indexmill.orchestrator.store.results import Change
from indexmill.orchestrator.store.rows import JobState

TASK: Final = ChunkTask


def next_message(message_id: str, state: JobState, before: StageResult) -> ChunkTask:
    """Return the message with the document's text, or where it is stored."""
    document = before.output if isinstance(before.output, Document) else None
    return ChunkTask(
        message_id=message_id,
        job_id=state.job_id,
        attempt=state.attempt,
        request_id=before.request_id,
        text=document.text if document else "",
        text_ref=document.text_ref if document else None,
        title=document.title if document else None,
        chunker=_kept_chunker(state, document) if document else None,
    )


def _kept_chunker(state: JobState, document: Document) -> str | None:
    """Return the chunker of the published version if text and title are the same: then its chunks stay."""
    previous = state.previous
    if previous is None or (previous.title or None) != (document.title or None):
        return None
    same = text_digest(state, document) == previous.facts.get("text_sha256")
    return previous.facts.get("chunker") if same else None


def renew(state: JobState, payload: str, message_id: str, attempt: int, _generation: int) -> ChunkTask:
    """Return the kept message with new ids."""
    return read_kept(ChunkTask, payload, message_id=message_id, attempt=attempt, job_id=state.job_id)


def facts(_state: JobState, result: StageResult) -> Change:
    """Return number and digest of the chunks: the same whether they came inline or by reference."""
    chunked = result.chunked if isinstance(result, ChunkResult) else None
    if chunked is None:
        return Change()
    digests = {
        "chunks_sha256": _digest(chunked),
        "chunk_count": chunked.chunk_count,
        "chunk_settings": ChunkSettings().model_dump(),
    }
    if chunked.chunker is not None:
        digests |= {"chunker": chunked.chunker, "tokenizer": chunked.tokenizer}
    tokens = None if chunked.chunks is None else sum(chunk.tokens for chunk in chunked.chunks)
    return Change(chunk_count=chunked.chunk_count, tokens=tokens, facts=digests)


def _digest(chunked: Chunked) -> str:
    if chunked.chunks_ref is not None:
        return chunked.chunks_ref.sha256
    return hashlib.sha256(CHUNK_LIST.dump_json(chunked.chunks or [])).hexdigest()


def from_http(_state: JobState, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the chunks of `{chunks}`."""
    chunks: list[Chunk] = [*ChunkedResult.model_validate(result).chunks]
    return {"chunked": Chunked(chunks=chunks, chunk_count=len(chunks))}
