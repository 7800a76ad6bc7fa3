"""Messages of the queues: versioned JSON, never pickles.

A reader accepts its own version and the one before; a newer version stays in the queue for newer code.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from indexmill.contracts.content import BlobRef, Chunk, ChunkSettings, Document

ModelT = TypeVar("ModelT", bound=BaseModel)


class Message(BaseModel):
    """What every message carries."""

    model_config = ConfigDict(populate_by_name=True)

    message_id: str
    """Id of the outbox row; the same in every copy."""
    job_id: str | None = None
    """None: done for a caller who wants no callback."""
    attempt: int = 1
    """The fence: only the Orchestrator raises it."""
    request_id: str | None = None
    """Request that caused the message, for logs."""


class Target(BaseModel):
    """Which document of which corpus a job writes."""

    caller_id: str
    corpus_name: str
    corpus_key: str
    document_id: str
    url: str


class Stored(BaseModel):
    """Raw content that was fetched before, with its site's headers."""

    ref: BlobRef
    content_type: str
    charset: str | None = None
    final_url: str


class ScrapeTask(Message):
    """Fetch one URL."""

    schema_name: Literal["indexmill.scrape.v1"] = Field(default="indexmill.scrape.v1", alias="schema")
    url: str
    stored: Stored | None = None
    """Read this in place of the site."""


class ChunkTask(Message):
    """Split one document's text. Exactly one of `text` and `text_ref` is set."""

    schema_name: Literal["indexmill.chunk.v1"] = Field(default="indexmill.chunk.v1", alias="schema")
    text: str | None = None
    text_ref: BlobRef | None = None
    title: str | None = None
    settings: ChunkSettings = ChunkSettings()
    result_key: str | None = None
    """Object that will hold the result, a Chunked as JSON, when there is no job to report to."""


class EmbedTask(Message):
    """Embed and publish the chunks of one document. Exactly one of `chunks` and `chunks_ref` is set."""

    schema_name: Literal["indexmill.embed.v1"] = Field(default="indexmill.embed.v1", alias="schema")
    target: Target
    generation: int
    """Newer generations of a document win; issued by the Orchestrator."""
    title: str | None = None
    content_sha256: str | None = None
    chunks: list[Chunk] | None = None
    chunks_ref: BlobRef | None = None
    chunk_count: int


class Embedded(BaseModel):
    """What an embed stage did."""

    chunk_count: int
    embedded: int
    """Chunks that were sent to the model; the rest was already there."""
    model: str
    dimension: int
    published: bool
    """False: nothing changed, because a newer generation is published or because this one is fenced out."""
    superseded: bool = False
    """Whether it was the newer generation."""


class StageFailure(BaseModel):
    """Why a stage gave up."""

    code: str
    message: str
    cause: str | None = None
    tries: int = 1


class Retrying(BaseModel):
    """A stage that waits for its next try longer than a moment."""

    tries: int
    """Tries so far."""
    next_retry_at: datetime
    """By the worker's own clock; what counts where `retry_in_s` is missing."""
    cause: str
    retry_in_s: float | None = None
    """The same as a duration, so that the Orchestrator's database can tell the time."""


class Chunked(BaseModel):
    """One document's chunks, or why there are none."""

    chunks: list[Chunk] | None = None
    chunks_ref: BlobRef | None = None
    chunk_count: int = 0
    failure: StageFailure | None = None


class StageResult(Message):
    """A worker's report to the Orchestrator: what the stage made, by stage, or why it failed."""

    schema_name: Literal["indexmill.result.v1"] = Field(default="indexmill.result.v1", alias="schema")
    stage: Literal["scraping", "chunking", "embedding"]
    status: Literal["success", "failed", "retrying"]
    document: Document | None = None
    chunked: Chunked | None = None
    embedded: Embedded | None = None
    failure: StageFailure | None = None
    retrying: Retrying | None = None
    tries: int | None = None
    """Tries that the stage took."""
    worker: str | None = None
    """Execution environment that did the work, for the history."""
    elapsed_ms: int = 0

    @model_validator(mode="after")
    def _carries_what_it_reports(self) -> Self:
        made = {"scraping": self.document, "chunking": self.chunked, "embedding": self.embedded}[self.stage]
        told = {"success": made, "failed": self.failure, "retrying": self.retrying}[self.status]
        if told is None:
            raise ValueError("a report carries what its stage made, why it failed, or until when it waits")
        return self


class NewerSchema(Exception):
    """The message is of a version that this code does not know yet: keep it for the code that does."""


class UnreadableMessage(Exception):
    """The message is no message of ours: it can never be handled."""


def read(model: type[ModelT], body: str) -> ModelT:
    """Parse a queue's message body.

    Raises NewerSchema for a later version of the same schema, UnreadableMessage for anything else.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if _version(body, model) > _own_version(model):
            raise NewerSchema(str(model.__name__)) from error
        raise UnreadableMessage(f"{error.error_count()} fields of {model.__name__} are wrong") from error


def chunk_task_from(payload: str, *, message_id: str, job_id: str, attempt: int) -> ChunkTask:
    """Return a kept chunking payload as the message of an outbox row.

    A payload of the release before was not a message of its own: no schema, no envelope. Its fields have the
    same names and meaning.
    """
    ids = {"message_id": message_id, "job_id": job_id, "attempt": attempt}
    return ChunkTask.model_validate({**json.loads(payload), **ids})


def write(message: BaseModel) -> str:
    """Return the body of a message: JSON without nulls."""
    return message.model_dump_json(by_alias=True, exclude_none=True)


def _own_version(model: type[BaseModel]) -> int:
    return int(str(model.model_fields["schema_name"].default).rpartition(".v")[2])


def _version(body: str, model: type[BaseModel]) -> int:
    family = str(model.model_fields["schema_name"].default).rpartition(".v")[0]
    try:
        name = json.loads(body)["schema"]
    except (ValueError, TypeError, KeyError):
        return 0
    found, _, version = str(name).rpartition(".v")
    return int(version) if found == family and version.isdecimal() else 0
