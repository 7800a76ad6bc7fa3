"""Documents and chunks, as stages pass them on."""

from __future__ import annotations

import hashlib
from typing import Annotated, Final, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter

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


CHUNKER: Final = "1"
"""Version of the code that splits text; raised when the same text gives other chunks."""


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
