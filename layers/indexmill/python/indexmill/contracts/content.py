"""Documents and chunks, as stages pass them on, and content that callers give instead of a URL."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Final, Literal, Self
from urllib.parse import quote

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from pydantic_core import PydanticCustomError

from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.identity import MAX_URL_LENGTH, DocumentText, PlainText

INLINE_LIMIT_BYTES: Final = 60_000
"""A message with more than this many bytes of body carries its content by reference (SQS bills per 64 kB)."""


MAX_INTEGER: Final = 2**31 - 1
"""The largest number that a column of type INTEGER has."""
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]


class BlobRef(BaseModel):
    """A stored object: content-addressed, so writing it twice is writing it once."""

    model_config = ConfigDict(frozen=True)

    key: str
    size: int
    sha256: str

    @classmethod
    def of(cls, data: bytes, kind: str) -> BlobRef:
        """Return where `data` is stored; `kind` is the key's first part."""
        digest = hashlib.sha256(data).hexdigest()
        return cls(key=f"{kind}/{digest[:2]}/{digest}", size=len(data), sha256=digest)


Unchanged = Literal["not_modified", "same_content", "max_age"]
"""The site answered 304, it sent the same bytes, or it was not asked again within `max_age`."""


class PageMetadata(BaseModel):
    """Statements of a page about itself."""

    title: str | None = None
    description: str | None = None
    language: str | None = None
    author: str | None = None
    site_name: str | None = None
    published: str | None = None
    """A date or time of ISO 8601, as `modified` is."""
    modified: str | None = None
    canonical_url: str | None = None
    """Which URL the page wants to be known by; null for one that would not be fetched."""


class PageFacts(BaseModel):
    """Facts of a document's version that search shows and filters by; None for unknown."""

    content_type: str | None = None
    """Media type of the raw content, without parameters."""
    language: str | None = None
    """As the page declares it."""
    published_at: AwareDatetime | None = None
    """When it was published, as the page says itself."""
    fetched_at: AwareDatetime | None = None
    """When the site answered with this content last."""
    page_starts: list[int] | None = None
    """Offsets in the text at which the pages of a PDF begin, from its first one on."""


class Document(BaseModel):
    """Result of scraping one URL. One of `text` and `text_ref` is set; neither when it is `unchanged`."""

    url: str
    """The URL that was asked for, canonical."""
    final_url: str
    """Where redirects ended."""
    title: str | None = None
    content_type: str
    """Media type of the raw content, without parameters."""
    charset: str | None = None
    """As the site sent it."""
    language: str | None = None
    rendered: bool = False
    """Whether a browser ran the scripts of the page: the raw content is what they made of it."""
    nofollow: bool = False
    """Whether the page asks that none of its links be followed."""
    links: list[str] | None = None
    """Canonical URLs that the page links to, where they were asked for; None when it is `unchanged`."""
    notes: list[str] | None = None
    """Sentences about what of it could not be read; None for nothing."""
    text: str | None = None
    """Markdown."""
    text_ref: BlobRef | None = None
    raw_ref: BlobRef | None = None
    raw_stored_at: AwareDatetime | None = None
    """When that object was written last, by the clock of the worker that wrote it."""
    content_sha256: str
    """Digest of the raw content."""
    extractor: str | None = None
    """Version of the code that made text of it."""
    etag: str | None = None
    """As the site sent it."""
    last_modified: str | None = None
    """As the site sent it."""
    fetched_at: AwareDatetime | None = None
    """When the site answered with this content last, by the clock of the worker that asked."""
    published_at: AwareDatetime | None = None
    """When the page was published, as it says itself; a day is its first moment in UTC."""
    page_starts: list[int] | None = None
    """Offsets in the text at which the pages of a PDF begin, from its first one on."""
    unchanged: Unchanged | None = None
    canonical_url: str | None = None
    """Which other URL of its host the page wants to be known by."""


class DetailedDocument(Document):
    """Document for a caller who waits for it; messages have no such fields."""

    html: str | None = None
    metadata: PageMetadata


class Chunk(BaseModel):
    """A piece of a document, in order."""

    ordinal: Count
    text: str
    context: str = ""
    """Title and headings above the piece, joined by " > "."""
    start: Count
    """Offset of `text` in the document's text, in characters."""
    end: Count
    tokens: Count
    """Tokens of `embedded_text` in the model's own tokenizer."""

    @property
    def embedded_text(self) -> str:
        """Return the text to embed and index: the context, then the text."""
        return f"{self.context}\n\n{self.text}" if self.context else self.text


CHUNK_LIST: Final = TypeAdapter(list[Chunk])
"""Chunks as they are stored behind a `chunks_ref`: a JSON list."""


class SourceText(BaseModel):
    """The text that chunks were cut from, without what they have of it: the chunks and this are the text."""

    rest: str = ""
    """Characters that no chunk has, in order: white space between chunks, as a rule."""
    rest_ref: BlobRef | None = None
    """Where `rest` is stored, when it is too long for a message."""
    sha256: str
    length: Count
    """Of the text, in characters."""

    @classmethod
    def of(cls, text: str, chunks: Iterable[Chunk]) -> Self | None:
        """Return that of `text`; None when no store can keep it, or a chunk is none of it."""
        if "\0" in text:
            return None
        rest, at = [], 0
        for chunk in chunks:
            if chunk.end - chunk.start != len(chunk.text):
                continue
            if text[chunk.start : chunk.end] != chunk.text:
                return None
            rest.append(text[at : chunk.start])
            at = max(at, chunk.end)
        rest.append(text[at:])
        return cls(rest="".join(rest), sha256=hashlib.sha256(text.encode()).hexdigest(), length=len(text))

    def whole(self, pieces: Iterable[tuple[int | None, int | None, str]]) -> str | None:
        """Return the text; `pieces` are start, end and text of the chunks in order.

        None when they are not the chunks that it was made with.
        """
        found, at, used = [], 0, 0
        for start, end, text in pieces:
            if start is None or end is None or end - start != len(text):
                continue
            gap = max(0, start - at)
            found += [self.rest[used : used + gap], text[max(0, at - start) :]]
            at, used = max(at, end), used + gap
        whole = "".join([*found, self.rest[used:]])
        return whole if hashlib.sha256(whole.encode()).hexdigest() == self.sha256 else None


CHUNKER: Final = "2"
"""Version of the code that splits text; raised when the same text gives other chunks."""
FIRST_CHUNKER: Final = "1"
"""Of the release before: its chunks stay while the text of their page is the same."""


class ChunkSettings(BaseModel):
    """How text is split, in tokens of the model's own tokenizer."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_tokens: int = Field(default=256, ge=64, le=2048)
    overlap_tokens: int = Field(default=32, ge=0, le=1024)


def chunk_ids(document_id: str, chunks: list[Chunk]) -> list[str]:
    """Return one id per chunk: sha256 of document, embedded text and its occurrence.

    A retry, a replay and a re-index of unchanged text arrive at the same ids.
    """
    seen: dict[str, int] = {}
    ids = []
    for chunk in chunks:
        text = chunk.embedded_text
        occurrence = seen.get(text, 0)
        seen[text] = occurrence + 1
        ids.append(hashlib.sha256(f"{document_id}\0{text}\0{occurrence}".encode()).hexdigest())
    return ids


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


MAX_METADATA_KEYS: Final = 20
MAX_METADATA_NAME: Final = 64
MAX_METADATA_VALUE: Final = 512
MAX_METADATA_BYTES: Final = 4096


def _few_bytes(metadata: dict[str, str] | None) -> dict[str, str] | None:
    size = len(json.dumps(metadata or {}, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"Send metadata of at most {MAX_METADATA_BYTES:,} bytes as JSON in UTF-8.")
    return metadata


MetadataName = Annotated[PlainText, Field(min_length=1, max_length=MAX_METADATA_NAME)]
MetadataValue = Annotated[PlainText, Field(max_length=MAX_METADATA_VALUE)]
Metadata = Annotated[
    Annotated[dict[MetadataName, MetadataValue], Field(max_length=MAX_METADATA_KEYS)] | None,
    AfterValidator(_few_bytes),
]
"""What a caller says about its document, by names of its own; None says nothing, {} that there is none."""


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
