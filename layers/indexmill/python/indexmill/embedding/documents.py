"""Embed work of one document: its chunks, their ids, and the version to publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from indexmill.contracts.content import CHUNK_LIST, Chunk, chunk_ids
from indexmill.contracts.errors import ErrorCode, PermanentError
from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.ports import DocumentVersion, Space, Vector
from indexmill.platform.blobs import BlobStore


@dataclass(slots=True)
class Work:
    """A task with its chunks at hand."""

    position: int
    """Of its delivery in the batch."""
    task: EmbedTask
    chunks: list[Chunk]
    ids: list[str] = field(default_factory=list)
    """Beside `chunks`."""

    def __post_init__(self) -> None:
        self.ids = chunk_ids(self.task.target.document_id, self.chunks)

    def missing(self, stored: set[str]) -> dict[str, str]:
        """Return the text to embed for each chunk id that is not among `stored`."""
        pairs = zip(self.ids, self.chunks, strict=True)
        return {chunk_id: chunk.embedded_text for chunk_id, chunk in pairs if chunk_id not in stored}

    def version(self, space: Space, vectors: Mapping[str, Vector]) -> DocumentVersion:
        """Return what the index publishes; `vectors` may hold those of other documents as well."""
        task = self.task
        return DocumentVersion(
            target=task.target,
            generation=task.generation,
            job_id=task.job_id,
            title=task.title,
            content_sha256=task.content_sha256,
            space=space,
            chunks=self.chunks,
            chunk_ids=self.ids,
            vectors={chunk_id: vectors[chunk_id] for chunk_id in self.ids if chunk_id in vectors},
        )


def resolve(position: int, task: EmbedTask, blobs: BlobStore) -> Work:
    """Fetch the chunks of `task` where it only names them.

    Raises PermanentError (content_missing, content_corrupt, empty_content), TransientError of the blobs.
    """
    chunks = task.chunks if task.chunks is not None else _fetched(task, blobs)
    if len(chunks) != task.chunk_count:
        raise PermanentError(
            ErrorCode.CONTENT_CORRUPT, f"{task.chunk_count} chunks were announced and {len(chunks)} came."
        )
    if not chunks:
        raise PermanentError(ErrorCode.EMPTY_CONTENT, "The document has no chunks.")
    return Work(position, task, chunks)


def _fetched(task: EmbedTask, blobs: BlobStore) -> list[Chunk]:
    if task.chunks_ref is None:
        return []
    try:
        return CHUNK_LIST.validate_json(blobs.get(task.chunks_ref))
    except ValidationError as error:
        raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored chunks are unreadable.") from error


def groups(works: Sequence[Work], max_chunks: int) -> list[list[Work]]:
    """Put works together until a group has `max_chunks` chunks; a larger one is alone."""
    found: list[list[Work]] = []
    size = 0
    for work in works:
        if not found or size + len(work.chunks) > max_chunks:
            found.append([])
            size = 0
        found[-1].append(work)
        size += len(work.chunks)
    return found
