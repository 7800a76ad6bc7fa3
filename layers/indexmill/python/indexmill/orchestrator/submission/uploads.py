"""Content given in place of a URL: in the request, or put into the bucket by its caller before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from indexmill.contracts.content import (
    MAX_UPLOAD_BYTES,
    BlobRef,
    Content,
    UploadGrant,
    UploadRequest,
    media_type_of,
    uri_of,
)
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import CallerContext, new_id
from indexmill.contracts.messages import Stored
from indexmill.platform.aws.s3_blobs import BlobStore
from indexmill.platform.time import Clock

_VALID: Final = timedelta(minutes=15)


@dataclass(frozen=True, slots=True)
class Uploaded:
    """An object that a caller uploaded."""

    ref: BlobRef
    content_type: str


class Uploads(Protocol):
    """Objects that callers put into the bucket by themselves, by key."""

    def grant(self, key: str, request: UploadRequest, valid_s: int) -> tuple[str, dict[str, str]]:
        """Return the URL of one PUT of that size, digest and type, and the headers that it must have."""
        ...

    def find(self, key: str) -> Uploaded | None:
        """Return what was put there, with the digest that the store checked.

        Raises TransientError(storage_unavailable).
        """
        ...


@dataclass(frozen=True, slots=True)
class GrantUpload:
    """The use case: lets a caller put one object."""

    uploads: Uploads
    clock: Clock
    make_id: Callable[[], str] = new_id

    def __call__(self, ctx: CallerContext, request: UploadRequest) -> UploadGrant:
        """Return where to put content of that size, digest and type; nothing is stored for it."""
        upload_id, expires_at = self.make_id(), self.clock.now() + _VALID
        url, headers = self.uploads.grant(
            upload_key(ctx.caller_id, upload_id), request, int(_VALID.total_seconds())
        )
        return UploadGrant(upload_id=upload_id, url=url, headers=headers, expires_at=expires_at)


def upload_key(caller_id: str, upload_id: str) -> str:
    """Return the object's key, which has the caller in it: an id of another caller names nothing."""
    return f"uploads/{hashlib.sha256(caller_id.encode()).hexdigest()[:32]}/{upload_id}"


def kept(blobs: BlobStore, content: Content, clock: Clock) -> Stored:
    """Keep a request's content as if it had been fetched; should the submit fail, that object expires."""
    media_type, charset = content.declared
    ref = blobs.put(content.data, kind="raw", content_type=media_type or "application/octet-stream")
    uri = uri_of(content.name)
    return Stored(ref=ref, content_type=media_type, charset=charset, final_url=uri, stored_at=clock.now())


def uploaded(uploads: Uploads, content: Content, sender: str) -> Stored:
    """Return where an upload of `sender` is. It expires, so the scrape stores it as raw content."""
    found = uploads.find(upload_key(sender, content.upload_id or ""))
    if found is None:
        raise CallerError(
            ErrorCode.NOT_FOUND,
            "There is no such upload, or nothing was sent to it.",
            field="body.content.upload_id",
        )
    if found.ref.size > MAX_UPLOAD_BYTES:
        raise CallerError(
            ErrorCode.CONTENT_TOO_LARGE,
            f"An upload has at most {MAX_UPLOAD_BYTES} bytes.",
            field="body.content.upload_id",
        )
    media_type, charset = media_type_of(found.content_type)
    uri = uri_of(content.name)
    return Stored(ref=found.ref, content_type=media_type, charset=charset, final_url=uri)
