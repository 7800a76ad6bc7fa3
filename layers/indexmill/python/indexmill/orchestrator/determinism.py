"""Digests of a job's inputs and outputs, from which a replay is compared with its original."""

from __future__ import annotations

import hashlib
from typing import Any

from indexmill.contracts.content import CHUNK_LIST, ChunkSettings
from indexmill.contracts.messages import Chunked, StageResult, Stored


def facts(result: StageResult) -> dict[str, Any]:
    """Return the digests of a stage's success; each stage adds its own."""
    if result.document is not None:
        document = result.document
        text = document.text_ref.sha256 if document.text_ref else _digest((document.text or "").encode())
        return {
            "content_sha256": document.content_sha256,
            "content_type": document.content_type,
            "extractor": document.extractor,
            "text_sha256": text,
        }
    if result.chunked is not None:
        return {
            "chunks_sha256": _chunks_digest(result.chunked),
            "chunk_count": result.chunked.chunk_count,
            "chunk_settings": ChunkSettings().model_dump(),
        }
    if result.embedded is not None:
        return {"model": result.embedded.model, "dimension": result.embedded.dimension}
    return {}


def stored(result: StageResult) -> Stored | None:
    """Return where the raw content of a scraped document is kept, and how to read it."""
    document = result.document
    if document is None or document.raw_ref is None:
        return None
    return Stored(
        ref=document.raw_ref,
        content_type=document.content_type,
        charset=document.charset,
        final_url=document.final_url,
    )


def _chunks_digest(chunked: Chunked) -> str:
    """Return one digest for the same chunks, whether they came inline or by reference."""
    if chunked.chunks_ref is not None:
        return chunked.chunks_ref.sha256
    return _digest(CHUNK_LIST.dump_json(chunked.chunks or []))


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
