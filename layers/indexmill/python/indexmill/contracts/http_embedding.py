"""Requests and answers of `POST /embedding/embed` and `POST /embedding/enqueue`."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from indexmill.contracts.content import MAX_INTEGER, Chunk, Count
from indexmill.contracts.identity import CorpusName, DocumentText, Identifier, Title, Url

MAX_TEXTS: Final = 128
MAX_TEXT_CHARS: Final = 32_000
MAX_ENQUEUED_CHUNKS: Final = 10_000


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("A text must not be blank.")
    return text


EmbeddableText = Annotated[
    DocumentText, Field(min_length=1, max_length=MAX_TEXT_CHARS), AfterValidator(_not_blank)
]


class EmbedRequest(BaseModel):
    """Texts to embed now. With `url` they also become the chunks of that document, in order."""

    model_config = ConfigDict(extra="forbid", strict=True)

    texts: list[EmbeddableText] = Field(min_length=1, max_length=MAX_TEXTS)
    corpus_name: CorpusName | None = None
    """None means the corpus "default"; without `url` it has no meaning."""
    url: Url | None = None
    title: Title | None = None
    job_id: Identifier | None = None
    """Echoed in the answer; no result is sent."""


class EmbedResponse(BaseModel):
    """One vector per text, in order."""

    embeddings: list[list[float]]
    model: str
    dimension: int
    count: int
    hidden_characters: int = 0
    """Invisible characters in the texts: zero-width ones, tags, and those that change the direction."""
    job_id: str | None = None
    document_id: str | None = None
    """Of the document that `url` names; null without one, as are the next two."""
    chunk_ids: list[str] | None = None
    """Beside `embeddings`."""
    published: bool | None = None
    """False: a newer version of the document appeared meanwhile and stays."""


class GivenChunk(Chunk):
    """A chunk as `POST /chunking/chunk` answers it; the order in the list counts, not `ordinal`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: EmbeddableText
    ordinal: Count = 0
    start: Count = 0
    end: Count = 0
    tokens: Count = 0
    context: DocumentText = Field(default="", max_length=MAX_TEXT_CHARS)


class EnqueueRequest(BaseModel):
    """Chunks of one document, to be embedded and published later: exactly one of `texts` and `chunks`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    chunks: list[GivenChunk] | None = Field(default=None, min_length=1, max_length=MAX_ENQUEUED_CHUNKS)
    texts: list[EmbeddableText] | None = Field(default=None, min_length=1, max_length=MAX_ENQUEUED_CHUNKS)
    corpus_name: CorpusName | None = None
    """None means the corpus "default"."""
    url: Url
    title: Title | None = None
    job_id: Identifier | None = None
    """Job that receives the result; internal callers only. Without it no result is sent."""
    attempt: int = Field(default=1, ge=1, le=MAX_INTEGER)
    """Of the job that `job_id` names."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if (self.chunks is None) == (self.texts is None):
            raise ValueError("Send exactly one of chunks and texts.")
        return self


class EnqueueResponse(BaseModel):
    """The work is in the queue."""

    status: Literal["queued"] = "queued"
    job_id: str | None = None
    document_id: str
    chunk_count: int
    hidden_characters: int = 0
    """Invisible characters in the texts: zero-width ones, tags, and those that change the direction."""
