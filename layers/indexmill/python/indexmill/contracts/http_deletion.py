"""Deletion of documents: what to delete, the answer of a dry run, and the report at the end."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from indexmill.contracts.content import ContentName, Count
from indexmill.contracts.identity import Identifier, UrlText

REPORT_TYPE: Final = "application/vnd.indexmill.deletion+json"
"""Payload type of a signed report."""


class DeletionFilter(BaseModel):
    """Documents of one corpus."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url_prefix: UrlText
    """They have a URL that begins so, as the service shows it (`upload:` for documents without one)."""


class Deletion(BaseModel):
    """Selection of the documents to delete: exactly one of the fields but `confirm`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    url: UrlText | None = None
    """The page's, in any spelling that a submit takes."""
    name: ContentName | None = None
    """Of a document without a URL."""
    document_id: Annotated[Identifier, Field(pattern="^[0-9a-f]{64}$")] | None = None
    filter: DeletionFilter | None = None
    everything: Literal[True] | None = None
    """The whole corpus, with its name."""
    confirm: Annotated[str, Field(min_length=1, max_length=1000)] | None = None
    """Of a dry run at most ten minutes ago; `filter` and `everything` need it."""

    @model_validator(mode="after")
    def _one_of(self) -> Self:
        if [self.url, self.name, self.document_id, self.filter, self.everything].count(None) != 4:
            raise ValueError("Send exactly one of url, name, document_id, filter and everything.")
        if self.confirm is not None and self.filter is None and self.everything is None:
            raise ValueError("One document needs no confirm.")
        return self


class DeletionPreview(BaseModel):
    """Answer of a deletion's dry run: the documents that match now. Nothing is changed."""

    documents: int
    """That match, searchable or not."""
    chunks: int
    confirm: str | None
    """Send it with the same request within ten minutes; null for one document, which needs none."""
    confirm_until: datetime | None


class Erased(BaseModel):
    """Rows that the index removed of documents, counted before; and those that are left."""

    chunks: Count
    memberships: Count
    vectors: Count
    postings: Count
    left: Count


class Removed(BaseModel):
    """Rows or objects of one kind."""

    before: int
    after: int
    """Counted when they were removed, by the same transaction."""


class Stays(BaseModel):
    """Something that a deletion leaves, with the rule, and for how long."""

    what: str
    why: str
    until: datetime | None
    """None: as long as the service keeps jobs."""


class DeletionReport(BaseModel):
    """Report of a deletion, counted before and after. It is signed: the payload of a DSSE envelope."""

    job_id: str
    caller_id: str
    what: dict[str, Any]
    """The selection, without a URL or a name."""
    requested_at: datetime
    erased_at: datetime
    documents: int
    document_ids: list[str]
    """The first 1,000, in their order."""
    removed: dict[str, Removed]
    """By kind: tables, and prefixes of the bucket."""
    referred: dict[str, Removed]
    """This caller's references to stored content. Others may have stored the same bytes: the report is the
    same whether they have."""
    stays: list[Stays]


class SignedReport(BaseModel):
    """DSSE envelope with a report; `indexmill audit verify` reads it."""

    model_config = ConfigDict(populate_by_name=True)

    payload_type: str = Field(alias="payloadType")
    payload: str
    """The report as JSON, in base64."""
    signatures: list[dict[str, str]]
    """`keyid` and `sig`, in base64, of each."""
