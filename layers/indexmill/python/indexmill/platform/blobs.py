"""Blob store port: large content, stored once under its digest."""

from __future__ import annotations

from typing import Protocol

from indexmill.contracts.content import BlobRef


class BlobStore(Protocol):
    """Content-addressed storage. All calls raise TransientError(storage_unavailable)."""

    def put(self, data: bytes, *, kind: str, content_type: str) -> BlobRef:
        """Store `data` and return where; `kind` is the key's first part ("raw", "text", "chunks")."""
        ...

    def put_at(self, key: str, data: bytes, *, content_type: str) -> None:
        """Store `data` under a key that was promised to a caller; a second write replaces the first."""
        ...

    def get(self, ref: BlobRef) -> bytes:
        """Return the content of `ref`.

        Raises PermanentError: content_missing when it is gone, content_corrupt when it changed.
        """
        ...
