"""Files as the content of a submit: small ones within the request, others by an upload."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import httpx

from indexmill.client.errors import ApiError, api_error
from indexmill.contracts.content import MAX_INLINE_BYTES, UploadGrant

_TIMEOUT_S = 60.0
"""Longest silence of the store."""


def content_of(
    path: Path, name: str | None, content_type: str | None, grant: Callable[[dict[str, Any]], UploadGrant]
) -> dict[str, str | None]:
    """Return the file as `content`; without a `content_type` it is guessed from the path.

    `grant` asks for an upload. Raises OSError and ApiError.
    """
    content_type = content_type or guess_type(path.name)[0]
    content = {"name": name or path.name}
    if path.stat().st_size <= MAX_INLINE_BYTES:
        data = b64encode(path.read_bytes()).decode()
        return {**content, "base64": data, "content_type": content_type}
    return {**content, "upload_id": _upload(path, content_type, grant)}


def _upload(path: Path, content_type: str | None, grant: Callable[[dict[str, Any]], UploadGrant]) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = file.tell()
        granted = grant({"size": size, "sha256": digest, "content_type": content_type})
        file.seek(0)
        try:
            # Not by the client's connection, which would send the API key along.
            answer = httpx.put(granted.url, content=file, headers=granted.headers, timeout=_TIMEOUT_S)
        except httpx.HTTPError as error:
            reason = str(error) or type(error).__name__
            raise ApiError("connection_error", f"The store of uploads did not answer: {reason}", 0) from error
    if not answer.is_success:
        raise api_error(answer.status_code, answer.reason_phrase, answer.text)
    return granted.upload_id
