"""Requests and answers of `POST /chunking/chunk` and `POST /chunking/enqueue`."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from indexmill.contracts.content import MAX_INTEGER, Chunk, ChunkSettings
from indexmill.contracts.identity import DocumentText, Identifier, Title


class RequestedSettings(ChunkSettings):
    """Chunk settings as a request may give them: no text for numbers, overlap less than half."""

    model_config = ConfigDict(strict=True)

    @model_validator(mode="after")
    def _overlap_is_less_than_half(self) -> Self:
        if self.overlap_tokens * 2 >= self.max_tokens:
            raise ValueError("overlap_tokens must be less than half of max_tokens.")
        return self


class ChunkRequest(BaseModel):
    """A text to split. Markdown structure is honoured; plain text works as well."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: DocumentText = Field(min_length=1)
    title: Title | None = None
    """Precedes every chunk's headings."""
    job_id: Identifier | None = None
    """Echoed in the answer; no result is sent."""
    settings: RequestedSettings = RequestedSettings()


class ChunkResponse(BaseModel):
    """The chunks in order; together they cover every visible character of the text."""

    chunks: list[Chunk]
    chunk_count: int
    tokens: int
    """Sum over the chunks, overlaps and contexts included."""
    settings: ChunkSettings
    hidden_characters: int = 0
    """Invisible characters in the text sent: zero-width ones, tags, and those that change the direction."""
    job_id: str | None = None


class ChunkEnqueueRequest(BaseModel):
    """A text to split later."""

    model_config = ConfigDict(extra="forbid", strict=True)

    text: DocumentText = Field(min_length=1)
    title: Title | None = None
    """Precedes every chunk's headings."""
    job_id: Identifier | None = None
    """Job that receives the result; internal callers only. Without it the result is only stored."""
    attempt: int = Field(default=1, ge=1, le=MAX_INTEGER)
    """Of the job that `job_id` names."""
    settings: RequestedSettings = RequestedSettings()


class ChunkEnqueueResponse(BaseModel):
    """The work is in the queue."""

    status: Literal["queued"] = "queued"
    hidden_characters: int = 0
    """Invisible characters in the text sent: zero-width ones, tags, and those that change the direction."""
    job_id: str | None = None
    result_key: str | None = None
    """Object of the content bucket that will hold the result; null with a job.

    It has `{chunks, chunk_count, chunker, tokenizer}` or `{failure}`.
    """
