"""Messages of the queues: versioned JSON, never pickles.

A reader accepts its own version and the one before; a newer version stays in the queue for newer code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self, TypeVar, cast, get_args

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from indexmill.contracts.content import (
    MAX_INTEGER,
    BlobRef,
    Chunk,
    ChunkSettings,
    Count,
    Document,
    PageFacts,
    SourceText,
)
from indexmill.contracts.cost import Spent
from indexmill.contracts.crawl import CrawlRules, Sitemap
from indexmill.contracts.http_deletion import Erased
from indexmill.contracts.identity import Accept

MessageT = TypeVar("MessageT", bound="Message")


class Message(BaseModel):
    """Fields of every message."""

    model_config = ConfigDict(populate_by_name=True)

    message_id: str
    """Id of the outbox row; the same in every copy."""
    job_id: str | None = None
    """None: done for a caller who wants no callback."""
    attempt: int = Field(default=1, le=MAX_INTEGER)
    """The fence: only the Orchestrator raises it."""
    request_id: str | None = None
    """Request that caused the message, for logs."""
    msg_version: Literal[1] = 1
    """Also the number in `schema`; a release reads its own version and the one before."""


class Target(BaseModel):
    """The document that a job writes, and its corpus."""

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
    stored_at: AwareDatetime | None = None
    """When the object was written last; None for content of the release before."""
    extractor: str | None = None
    """Version of the code that made text of it; None for content of the release before, as all below."""
    etag: str | None = None
    last_modified: str | None = None
    fetched_at: AwareDatetime | None = None
    """When the site answered with it last."""


class ScrapeTask(Message):
    """Fetch one URL."""

    schema_name: Literal["indexmill.scrape.v1", "indexmill.scrape.v2", "indexmill.scrape.v3"] = Field(
        default="indexmill.scrape.v1", alias="schema"
    )
    msg_version: Literal[1, 2, 3] = 1  # type: ignore[assignment]
    url: str
    stored: Stored | None = None
    """Read this in place of the site."""
    known: Stored | None = None
    """Raw content of the document's published version: not stored again when the site still has it."""
    current: bool = False
    """Whether today's chunker and model made the published version: with `known` content it needs no text."""
    published: bool = False
    """Whether the document has a published version. The release before has `known` alone."""
    max_age_s: int | None = None
    """Up to this age of `known` the site is not asked."""
    links: bool | None = None
    """Whether the page's links are reported; those of `current` content are known."""
    sitemap: CrawlRules | None = None
    """The URL is that of a sitemap: report those of its pages that these rules admit."""
    hosts: list[str] | None = None
    """Hosts and ports to which redirects may lead, as `host_of` returns them; None, as of old, is any."""
    accept: Accept = None
    """The page is read despite these doubts."""

    @model_validator(mode="after")
    def _more_is_newer(self) -> Self:
        # An older release would report no links, or refuse the page: it leaves the message to a newer one.
        if self.accept:
            self.schema_name, self.msg_version = "indexmill.scrape.v3", 3
        elif self.links or self.sitemap is not None:
            self.schema_name, self.msg_version = "indexmill.scrape.v2", 2
        return self


class ChunkTask(Message):
    """Split one document's text, by today's chunker or the one it names. Has `text` or `text_ref`."""

    schema_name: Literal["indexmill.chunk.v2"] = Field(default="indexmill.chunk.v2", alias="schema")
    msg_version: Literal[2] = 2  # type: ignore[assignment]
    text: str | None = None
    text_ref: BlobRef | None = None
    title: str | None = None
    settings: ChunkSettings = ChunkSettings()
    chunker: str | None = None
    result_key: str | None = None
    """Object that will hold the result, a Chunked as JSON, when there is no job to report to."""


class EmbedTask(Message):
    """Publish one document, or withdraw it without chunks. One of `chunks` and `chunks_ref` is set."""

    schema_name: Literal["indexmill.embed.v1", "indexmill.embed.v2"] = Field(
        default="indexmill.embed.v1", alias="schema"
    )
    msg_version: Literal[1, 2] = 1  # type: ignore[assignment]
    target: Target
    generation: int = Field(ge=0, le=2**63 - 1)
    """Newer generations of a document win; issued by the Orchestrator."""
    title: str | None = None
    content_sha256: str | None = None
    chunks: list[Chunk] | None = None
    chunks_ref: BlobRef | None = None
    chunk_count: Count
    withdraws: bool = False
    chunker: str | None = None
    """Version of the code that split the text; None for chunks that a caller made."""
    source: SourceText | None = None
    page: PageFacts | None = None
    metadata: dict[str, str] | None = None
    """Replaces what the document has; None leaves it."""
    erases: list[str] | None = None
    """Documents to erase in place of that; what a newer generation published of them stays."""

    @model_validator(mode="after")
    def _more_is_newer(self) -> Self:
        # An older release would lose it: it leaves the message to a newer one.
        if self.metadata is not None or self.erases is not None:
            self.schema_name, self.msg_version = "indexmill.embed.v2", 2
        return self


class Embedded(BaseModel):
    """Output of the embedding stage."""

    chunk_count: Count
    embedded: Count
    """Chunks that were sent to the model; the rest was already there."""
    model: str
    dimension: int
    published: bool
    """False: nothing changed, because a newer generation is published or because this one is fenced out."""
    superseded: bool = False
    """Whether it was the newer generation."""
    removed: Count = 0
    """Chunks that only the version before had."""
    searchable_at: AwareDatetime | None = None
    """Since when search sees this version, by the database's clock; None when that is another one."""


class StageFailure(BaseModel):
    """Cause of a stage's failure."""

    code: str
    message: str
    cause: str | None = None
    tries: int = 1
    links: list[str] | None = None
    """As in a document: of a page that was read, and that cannot or must not be indexed."""


class Retrying(BaseModel):
    """A stage that waits for its next try, after one that failed or for longer than a moment."""

    tries: int
    """Tries so far."""
    next_retry_at: datetime
    """By the worker's own clock; what counts where `retry_in_s` is missing."""
    cause: str
    retry_in_s: float | None = None
    """The same as a duration, which the Orchestrator adds to its database's time."""
    site: str | None = None
    """Site that keeps it waiting; that of its URL, or of where that redirects to."""
    failure: StageFailure | None = None
    """Of the last try, or of the site that keeps it waiting; None when nothing is wrong."""


class Chunked(BaseModel):
    """One document's chunks; in the object of a text without a job also the failure."""

    chunks: list[Chunk] | None = None
    chunks_ref: BlobRef | None = None
    chunk_count: Count = 0
    chunker: str | None = None
    """Version of the code that split the text."""
    tokenizer: str | None = None
    """Digest of the tokenizer file that it counted with."""
    source: SourceText | None = None
    failure: StageFailure | None = None


class StageResult(Message):
    """A stage's result for the Orchestrator: its output, its failure, or the time of its next try.

    One subclass per stage adds the output; `stage` is the discriminator.
    """

    schema_name: Literal["indexmill.result.v1", "indexmill.result.v2", "indexmill.result.v3"] = Field(
        default="indexmill.result.v1", alias="schema"
    )
    msg_version: Literal[1, 2, 3] = 1  # type: ignore[assignment]
    stage: str
    status: Literal["success", "failed", "retrying"]
    failure: StageFailure | None = None
    retrying: Retrying | None = None
    tries: int | None = None
    """Tries that the stage took."""
    worker: str | None = None
    """Execution environment that did the work, for the history."""
    elapsed_ms: int = 0
    spent: Spent | None = None
    """What the stage used for this result; None from a release without receipts, and for a wait."""

    @property
    def output(self) -> BaseModel | None:
        """Return the stage's output; None unless it succeeded."""
        return None

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if {"success": self.output, "failed": self.failure, "retrying": self.retrying}[self.status] is None:
            raise ValueError("a result has its stage's output, a failure, or the time of the next try")
        if isinstance(self.output, Erased):  # The release before would take the job for done.
            self.schema_name, self.msg_version = "indexmill.result.v3", 3
        return self


class ScrapeResult(StageResult):
    """Result of scraping."""

    stage: Literal["scraping"] = "scraping"
    document: Document | None = None
    sitemap: Sitemap | None = None
    """In place of a document, when that was asked for."""

    @model_validator(mode="after")
    def _more_is_newer(self) -> Self:
        document, failure = self.document, self.failure
        unchanged = document is not None and document.unchanged is not None
        links = (document is not None and document.links is not None) or (
            failure is not None and failure.links is not None
        )
        if unchanged or links or self.sitemap is not None:
            # The release before would split text that is not there, and lose links: it leaves the message to
            # this one.
            self.schema_name, self.msg_version = "indexmill.result.v2", 2
        return self

    @property
    def output(self) -> Document | Sitemap | None:
        """Return the document, or the sitemap that was asked for."""
        return self.document or self.sitemap


class ChunkResult(StageResult):
    """Result of chunking."""

    stage: Literal["chunking"] = "chunking"
    chunked: Chunked | None = None

    @model_validator(mode="after")
    def _has_chunks(self) -> Self:
        if self.chunked is not None and self.chunked.failure is not None:
            raise ValueError("a failed result has its failure beside its output, not inside")
        return self

    @property
    def output(self) -> Chunked | None:
        """Return the chunks."""
        return self.chunked


class EmbedResult(StageResult):
    """Result of embedding."""

    stage: Literal["embedding"] = "embedding"
    embedded: Embedded | None = None
    erased: Erased | None = None
    """In place of that, when it was asked for."""

    @property
    def output(self) -> Embedded | Erased | None:
        """Return counts, model, and whether the document was published; or what was removed."""
        return self.embedded or self.erased


_ANY_RESULT: Final[TypeAdapter[StageResult]] = TypeAdapter(
    Annotated[ScrapeResult | ChunkResult | EmbedResult, Field(discriminator="stage")]
)


def stage_result(**fields: Any) -> StageResult:
    """Return the result of the stage that `fields` name; raises ValidationError."""
    return _ANY_RESULT.validate_python(fields)


class NewerSchema(Exception):
    """The message has a later version than this code reads: keep it for newer code."""


class UnreadableMessage(Exception):
    """The message has no known schema or does not fit it: it can never be handled."""


def read(model: type[MessageT], body: str) -> MessageT:
    """Parse a queue's message body.

    Raises NewerSchema for a later version of the same schema, UnreadableMessage for anything else.
    """
    try:
        return _parse(model, body)
    except ValidationError as error:
        if _version(_fields(body), model) > max(get_args(model.model_fields["msg_version"].annotation)):
            raise NewerSchema(str(model.__name__)) from error
        raise UnreadableMessage(f"{error.error_count()} fields of {model.__name__} are wrong") from error


def read_kept(model: type[MessageT], payload: str, **changes: Any) -> MessageT:
    """Parse a payload that the outbox kept, with `changes`. Raises UnreadableMessage."""
    try:
        return model.model_validate({**_fields(payload), **changes})
    except ValidationError as error:
        raise UnreadableMessage(f"{error.error_count()} fields of {model.__name__} are wrong") from error


def family(model: type[Message]) -> str:
    """Return the schema's name without its version."""
    return str(model.model_fields["schema_name"].default).rpartition(".v")[0]


def write(message: BaseModel) -> str:
    """Return the body of a message: JSON without nulls."""
    return message.model_dump_json(by_alias=True, exclude_none=True)


def with_spent(body: str, spent: Mapping[str, float]) -> str:
    """Return the body of a result with what it spent, which is known only once the body's size is."""
    return f'{body[:-1]},"spent":{json.dumps(spent, separators=(",", ":"))}}}'


def _parse(model: type[MessageT], body: str) -> MessageT:
    if model is StageResult:
        return cast("MessageT", _ANY_RESULT.validate_json(body))
    return model.model_validate_json(body)


def _fields(body: str) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


_MOST_DIGITS: Final = 9  # of a version: int() refuses thousands of them


def _version(fields: Mapping[str, Any], model: type[Message]) -> int:
    """Return a message's version; 0 when it has another schema."""
    found, _, version = str(fields.get("schema", "")).rpartition(".v")
    if found != family(model) or not version.isdecimal() or len(version) > _MOST_DIGITS:
        return 0
    stated = fields.get("msg_version")
    return max(int(version), stated) if isinstance(stated, int) else int(version)
