"""A blob store in memory."""

from __future__ import annotations

import hashlib

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, PermanentError


class InMemoryBlobs:
    """Objects by key; writing the same content twice is writing it once."""

    def __init__(self) -> None:
        """Empty."""
        self.objects: dict[str, bytes] = {}
        self.puts: list[str] = []
        """Keys of all writes, in order."""

    def put(self, data: bytes, *, kind: str, content_type: str) -> BlobRef:
        """Keep `data` under its digest."""
        ref = BlobRef.of(data, kind)
        self.put_at(ref.key, data, content_type=content_type)
        return ref

    def put_at(self, key: str, data: bytes, *, content_type: str) -> None:
        """Keep `data` under `key`."""
        self.objects[key] = data
        self.puts.append(key)

    def get(self, ref: BlobRef) -> bytes:
        """Return the content, checked."""
        data = self.objects.get(ref.key)
        if data is None:
            raise PermanentError(ErrorCode.CONTENT_MISSING, "The stored content is gone.")
        if len(data) != ref.size or hashlib.sha256(data).hexdigest() != ref.sha256:
            raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored content is not what was stored.")
        return data
