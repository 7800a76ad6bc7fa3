"""Preconditions of publishing a document's version, the same for every index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from indexmill.contracts.errors import ErrorCode, IndexmillError
from indexmill.embedding.classify import failure
from indexmill.embedding.ports import DocumentVersion, PublishOutcome, Space, Vector

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
