"""Uploads in memory."""

from __future__ import annotations

import hashlib

from indexmill.contracts.content import BlobRef, UploadRequest
from indexmill.orchestrator.submission.uploads import Uploaded
from tests.twins.blobs import InMemoryBlobs


class InMemoryUploads:
    """Objects beside those of a blob store."""

    def __init__(self, blobs: InMemoryBlobs) -> None:
        """Share the store's objects."""
        self._blobs = blobs
        self._types: dict[str, str] = {}

    def grant(self, key: str, request: UploadRequest, valid_s: int) -> tuple[str, dict[str, str]]:
        """Remember the type; the URL is the key."""
        self._types[key] = request.content_type or "application/octet-stream"
        return key, {"valid-s": str(valid_s)}

    def find(self, key: str) -> Uploaded | None:
        """Return what `objects` has there."""
        data = self._blobs.objects.get(key)
        if data is None:
            return None
        ref = BlobRef(key=key, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        return Uploaded(ref, self._types[key])


def objects() -> tuple[InMemoryBlobs, InMemoryUploads]:
    """Return an empty store with its uploads."""
    blobs = InMemoryBlobs()
    return blobs, InMemoryUploads(blobs)
