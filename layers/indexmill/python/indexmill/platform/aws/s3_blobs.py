"""Blob store on S3: large content, stored once under its digest."""

from __future__ import annotations

import hashlib
from contextlib import closing
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from indexmill.contracts.content import BlobRef
from indexmill.contracts.errors import ErrorCode, PermanentError, TransientError
from indexmill.platform.aws.clients import LazyClient


class BlobStore:
    """Content-addressed storage in one bucket. All calls raise TransientError(storage_unavailable)."""

    def __init__(self, bucket: str, s3: Any | None = None) -> None:
        """The client is made on first use, so that a function that needs no blob never pays for it."""
        self._bucket = bucket
        self._s3 = s3 or LazyClient("s3")

    def put(self, data: bytes, *, kind: str, content_type: str) -> BlobRef:
        """Store `data` and return where; `kind` is the key's first part ("raw", "text", "chunks")."""
        ref = BlobRef.of(data, kind)
        self.put_at(ref.key, data, content_type=content_type)
        return ref

    def put_at(self, key: str, data: bytes, *, content_type: str) -> None:
        """Store `data` under a key that was promised to a caller; a second write replaces the first."""
        try:
            self._s3.put_object(Bucket=self._bucket, Key=key, Body=data, ContentType=content_type)
        except (BotoCoreError, ClientError) as error:
            raise TransientError(
                ErrorCode.STORAGE_UNAVAILABLE, "Stored content cannot be written."
            ) from error

    def get(self, ref: BlobRef) -> bytes:
        """Return the content of `ref`.

        Raises PermanentError: content_missing when it is gone, content_corrupt when it changed.
        """
        try:
            found = self._s3.get_object(Bucket=self._bucket, Key=ref.key)
            with closing(found["Body"]) as body:
                # A caller that uploads may send more than it announced.
                data: bytes = body.read() if found["ContentLength"] == ref.size else b""
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") in ("NoSuchKey", "404"):
                raise PermanentError(ErrorCode.CONTENT_MISSING, "The stored content is gone.") from error
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Stored content cannot be read.") from error
        except BotoCoreError as error:
            raise TransientError(ErrorCode.STORAGE_UNAVAILABLE, "Stored content cannot be read.") from error
        if hashlib.sha256(data).hexdigest() != ref.sha256:
            raise PermanentError(ErrorCode.CONTENT_CORRUPT, "The stored content is not what was stored.")
        return data
