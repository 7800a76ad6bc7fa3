"""Content that callers give instead of a URL, and the names of such documents."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from datetime import datetime
from typing import Annotated, Final, Self
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from indexmill.contracts.content import MAX_INTEGER
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.texts import MAX_URL_LENGTH, DocumentText, PlainText

MAX_INLINE_BYTES: Final = 180 * 1024
"""Of content within a request: as base64 it fits a request of 256 KiB."""
MAX_UPLOAD_BYTES: Final = 50 * 1024 * 1024
MAX_NAME_LENGTH: Final = 255
_SCHEME: Final = "upload:"
_MEDIA_TYPE: Final = re.compile(
    r"([A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+)(?:[ \t]*;[ \t]*charset=\"?([A-Za-z0-9_.:-]{1,40})\"?)?"
)


def uri_of(name: str) -> str:
    """Return what a document called `name` has in place of a URL: "upload:" and the encoded name.

    The same name is the same document. No URL that can be fetched has this scheme.
    """
    return _SCHEME + quote(unicodedata.normalize("NFC", name), safe="/!$&'()*+,;=:@")


def is_given(url: str) -> bool:
    """Return whether `url` names a document that was given, so that there is nothing to fetch."""
    return url.startswith(_SCHEME)


def media_type_of(content_type: str | None) -> tuple[str, str | None]:
    """Return media type and charset of a content type; "" for the first when there is none."""
    found = _MEDIA_TYPE.fullmatch(content_type or "")
    return (found.group(1).lower(), found.group(2)) if found else ("", None)


def _media_type(text: str) -> str:
    if _MEDIA_TYPE.fullmatch(text) is None:
        raise ValueError("Send a media type, as text/html or text/html; charset=utf-8.")
    return text


def _name(text: str) -> str:
    if not text.strip() or len(uri_of(text)) > MAX_URL_LENGTH:
        raise ValueError(
            f"Send a name that is not blank and has at most {MAX_URL_LENGTH:,} characters when encoded."
        )
    return text


def _inline(data: bytes) -> bytes:
    if len(data) > MAX_INLINE_BYTES:
        raise PydanticCustomError(
            ErrorCode.CONTENT_TOO_LARGE.value,
            "Content within a request has at most {most} bytes.",
            {"most": MAX_INLINE_BYTES},
        )
    return data


def _uploadable(size: int) -> int:
    if size > MAX_UPLOAD_BYTES:
        raise PydanticCustomError(
            ErrorCode.CONTENT_TOO_LARGE.value,
            "An upload has at most {most} bytes.",
            {"most": MAX_UPLOAD_BYTES},
        )
    return size


def _text(text: str) -> str:
    _inline(text.encode())
    return text


def _base64(text: str) -> str:
    try:
        _inline(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError("Send base64 with padding, as in RFC 4648.") from error
    return text


ContentName = Annotated[PlainText, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_name)]
"""Name that a caller gives a document, for example "reports/q3.pdf"."""
MediaType = Annotated[PlainText, Field(min_length=1, max_length=200), AfterValidator(_media_type)]


UploadId = Annotated[PlainText, Field(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class Content(BaseModel):
    """A document without a URL. Exactly one of `text`, `base64` and `upload_id`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: ContentName
    """The same name in the same corpus is the same document: newer content replaces it."""
    text: Annotated[DocumentText, Field(min_length=1), AfterValidator(_text)] | None = None
    base64: Annotated[str, Field(min_length=1), AfterValidator(_base64)] | None = None
    upload_id: UploadId | None = None
    """Of `POST /orchestrator/uploads`; the content was sent since."""
    content_type: MediaType | None = None
    """None: by the first bytes and the end of the name; text is text/plain. An upload has its own."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if [self.text, self.base64, self.upload_id].count(None) != 2:
            raise ValueError("Send exactly one of text, base64 and upload_id.")
        if self.upload_id is not None and self.content_type is not None:
            raise ValueError("Send the content_type of an upload to POST /orchestrator/uploads.")
        return self

    @property
    def data(self) -> bytes:
        """Return the bytes to read."""
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()

    @property
    def declared(self) -> tuple[str, str | None]:
        """Return media type and charset; text is in UTF-8, whatever it declares."""
        if self.text is None:
            return media_type_of(self.content_type)
        return media_type_of(self.content_type or "text/plain")[0], "utf-8"


class UploadRequest(BaseModel):
    """Content that is about to be uploaded."""

    model_config = ConfigDict(extra="forbid", strict=True)

    size: Annotated[int, Field(ge=1, le=MAX_INTEGER), AfterValidator(_uploadable)]
    """Bytes; another size is refused."""
    sha256: Annotated[PlainText, Field(pattern="^[0-9a-f]{64}$")]
    """Digest of the content, in hex; other content is refused."""
    content_type: MediaType | None = None
    """As of `content`."""


class UploadGrant(BaseModel):
    """Permission to upload content."""

    upload_id: str
    """For `content` of a submit."""
    url: str
    """For one PUT of the content."""
    headers: dict[str, str]
    """To send with it, unchanged."""
    expires_at: datetime
    """The PUT has to begin before."""
