"""Content that callers give instead of a URL, and the names of such documents."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from typing import Annotated, Final, Self
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.texts import MAX_URL_LENGTH, DocumentText, PlainText

MAX_INLINE_BYTES: Final = 180 * 1024
"""Of content within a request: as base64 it fits a request of 256 KiB."""
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


def _media_type(text: str) -> str:
    if _MEDIA_TYPE.fullmatch(text) is None:
        raise ValueError("a media type, as text/html or text/html; charset=utf-8")
    return text


def _name(text: str) -> str:
    if not text.strip() or len(uri_of(text)) > MAX_URL_LENGTH:
        raise ValueError(
            f"a name that is not blank, and has at most {MAX_URL_LENGTH:,} characters when encoded"
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


def _text(text: str) -> str:
    _inline(text.encode())
    return text


def _base64(text: str) -> str:
    try:
        _inline(base64.b64decode(text, validate=True))
    except binascii.Error as error:
        raise ValueError("base64 with padding, as in RFC 4648") from error
    return text


ContentName = Annotated[PlainText, Field(min_length=1, max_length=MAX_NAME_LENGTH), AfterValidator(_name)]
"""What a caller calls a document, for example "reports/q3.pdf"."""
MediaType = Annotated[PlainText, Field(min_length=1, max_length=200), AfterValidator(_media_type)]


class Content(BaseModel):
    """A document without a URL. Exactly one of `text` and `base64`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    name: ContentName
    """The same name in the same corpus is the same document: newer content replaces it."""
    text: Annotated[DocumentText, Field(min_length=1), AfterValidator(_text)] | None = None
    base64: Annotated[str, Field(min_length=1), AfterValidator(_base64)] | None = None
    content_type: MediaType | None = None
    """None: by the first bytes and the end of the name; text is text/plain."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("send exactly one of text and base64")
        return self

    @property
    def data(self) -> bytes:
        """Return the bytes to read."""
        return base64.b64decode(self.base64) if self.base64 is not None else (self.text or "").encode()

    @property
    def media_type(self) -> str:
        """Return the media type without parameters; "" when it is not known."""
        if self.content_type is None:
            return "text/plain" if self.text is not None else ""
        found = _MEDIA_TYPE.fullmatch(self.content_type)
        return found.group(1).lower() if found else ""

    @property
    def charset(self) -> str | None:
        """Return the declared charset; text is in UTF-8, whatever it declares."""
        if self.text is not None:
            return "utf-8"
        found = _MEDIA_TYPE.fullmatch(self.content_type or "")
        return found.group(2) if found else None
