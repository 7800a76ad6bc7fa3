"""Documents to embed: work of a task, the version to publish, and the preconditions of publishing it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from indexmill.contracts.content import CHUNK_LIST, Chunk, PageFacts, SourceText, chunk_ids
from indexmill.contracts.errors import ErrorCode, IndexmillError, PermanentError, failure
from indexmill.contracts.messages import EmbedTask
from indexmill.embedding.ports import DocumentVersion, PublishOutcome, Space, Vector
from indexmill.platform.aws.s3_blobs import BlobStore


@dataclass(slots=True)
class Work:
    """A task with its chunks at hand."""

    position: int
    """Of its delivery in the batch."""
    task: EmbedTask
    chunks: list[Chunk]
    source: SourceText | None = None
    ids: list[str] = field(default_factory=list)
    """Beside `chunks`."""

    def __post_init__(self) -> None:
        self.ids = chunk_ids(self.task.target.document_id, self.chunks)

    def missing(self, stored: set[str]) -> dict[str, str]:
        """Return the text to embed for each chunk id that is not among `stored`."""
        pairs = zip(self.ids, self.chunks, strict=True)
        return {chunk_id: chunk.embedded_text for chunk_id, chunk in pairs if chunk_id not in stored}

    def paid(self, stored: set[str], before: set[tuple[str, str, str]]) -> set[str]:
        """Return the chunk ids that this document pays for, and not others of its corpus in `before`."""
        target, found = self.task.target, set[str]()
        for chunk_id, text in self.missing(stored).items():
            if (paid := (target.caller_id, target.corpus_key, text)) not in before:
                before.add(paid)
                found.add(chunk_id)
        return found

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
            chunker=task.chunker,
            source=self.source,
            page=task.page or PageFacts(),
            metadata=task.metadata,
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
    if not chunks and not task.withdraws:
        raise PermanentError(ErrorCode.EMPTY_CONTENT, "The document has no chunks.")
    return Work(position, task, chunks, _source(task, blobs))


def _source(task: EmbedTask, blobs: BlobStore) -> SourceText | None:
    """Return the task's own, with what it only names."""
    found = task.source
    if found is None or found.rest_ref is None:
        return found
    return found.model_copy(update={"rest": blobs.get(found.rest_ref).decode(), "rest_ref": None})


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


_UNIT_TOLERANCE = 1e-3


def newest(versions: Iterable[DocumentVersion]) -> list[DocumentVersion]:
    """Return one version per document, the newest of each, by document id.

    Writers that take their documents in this order never wait for each other in a circle.
    """
    chosen: dict[str, DocumentVersion] = {}
    for version in versions:
        known = chosen.get(version.target.document_id)
        if known is None or known.generation < version.generation:
            chosen[version.target.document_id] = version
    return [chosen[key] for key in sorted(chosen)]


def check(version: DocumentVersion) -> None:
    """Check that ids and vectors fit the chunks.

    Raises PermanentError: dimension_mismatch, or vector_rejected for a vector without a direction or a chunk
    set that names one chunk twice.
    """
    if len(version.chunk_ids) != len(version.chunks) or len(set(version.chunk_ids)) != len(version.chunks):
        raise failure(ErrorCode.VECTOR_REJECTED, "A document's chunk ids do not match its chunks.")
    for vector in version.vectors.values():
        unit(vector, version.space)


def unit(vector: Vector, space: Space) -> Vector:
    """Return `vector` with length 1. Raises PermanentError (dimension_mismatch, vector_rejected)."""
    if len(vector) != space.dimension:
        raise failure(
            ErrorCode.DIMENSION_MISMATCH,
            f"A vector has {len(vector)} numbers where {space.model} has {space.dimension}.",
        )
    length = math.hypot(*vector)
    if not math.isfinite(length) or length == 0.0:
        raise failure(ErrorCode.VECTOR_REJECTED, "A vector is zero or has numbers that are not finite.")
    if abs(length - 1.0) <= _UNIT_TOLERANCE:
        return vector
    return [number / length for number in vector]


def missing_vectors(count: int) -> IndexmillError:
    """Return the error for chunks with no vector, new or kept: another writer dropped theirs just now."""
    return failure(
        ErrorCode.EMBEDDING_INCOMPLETE, f"{count} chunks have no vector any more; they are embedded again."
    )


def outcomes(versions: Sequence[DocumentVersion], published: dict[str, int]) -> list[PublishOutcome]:
    """Return what became of each version; `published` is the generation that search sees, by document id."""
    return [_outcome(version.generation, published.get(version.target.document_id)) for version in versions]


def _outcome(generation: int, seen: int | None) -> PublishOutcome:
    if seen is None or seen < generation:
        return PublishOutcome.FENCED
    return PublishOutcome.PUBLISHED if seen == generation else PublishOutcome.SUPERSEDED
