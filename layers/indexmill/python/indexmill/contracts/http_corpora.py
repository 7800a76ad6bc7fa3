"""Requests and answers about corpora: lists, figures, names, grants."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from indexmill.contracts.identity import CALLER_ID, CorpusName


class CorpusModel(BaseModel):
    """A model that chunks of a corpus have vectors of."""

    model: str
    dimension: int


class Corpus(BaseModel):
    """A corpus as its caller sees it."""

    corpus_name: str
    corpus_id: str
    """Stays the same when the corpus is renamed. Routes that read take it in the place of a name."""
    access: Literal["read", "write"]
    """`read`: it is another caller's, who shares it with this one."""
    documents: int | None
    """Documents that search finds. Null, as `bytes`, while what an earlier release wrote is not counted."""
    chunks: int
    bytes: int | None
    """Of the chunks' texts, in UTF-8."""
    models: list[CorpusModel]
    """More than one while documents of an earlier model are not indexed again."""
    created_at: datetime
    indexed_at: datetime | None
    """When search got the newest version of any of its documents; null before the first one, and until the
    next one for a corpus of an earlier release."""


class CorpusList(BaseModel):
    """One page of the corpora that a caller may read, by name."""

    corpora: list[Corpus]
    count: int
    next_cursor: str | None
    """For the next page; null on the last one."""


class RenameRequest(BaseModel):
    """Another name for a corpus."""

    model_config = ConfigDict(extra="forbid", strict=True)

    new_name: CorpusName
    """A name that no other corpus of the caller has."""


class GrantRequest(BaseModel):
    """A caller who may read a corpus, or may no more."""

    model_config = ConfigDict(extra="forbid", strict=True)

    caller_id: Annotated[str, Field(pattern=CALLER_ID)]
    """From that caller, whose GET /orchestrator/limits has it as `caller_id`."""


class Grant(BaseModel):
    """A caller who may read a corpus."""

    caller_id: str
    granted_at: datetime


class CorpusGrants(BaseModel):
    """Callers who may read a corpus beside its owner."""

    corpus_name: str
    corpus_id: str
    grants: list[Grant]
    """Also of ids that no caller has: they look the same."""


class VerifyRequest(BaseModel):
    """Continuation of a verification."""

    model_config = ConfigDict(extra="forbid", strict=True)

    cursor: Annotated[str | None, Field(max_length=300)] = None
    """`next_cursor` of the answer before; null begins."""


class WrongDocument(BaseModel):
    """A document that does not have what its catalogue says."""

    document_id: str
    expected: int
    """Chunks."""
    chunks: int
    texts: int
    vectors: int
    """Of its model."""
    superseded: int
    """Chunks of other versions, which should be gone."""


class ComparedFigure(BaseModel):
    """A figure of a corpus, as it is stored and as its documents add up to."""

    name: Literal["documents", "chunks", "words", "bytes", "postings"]
    stored: int | None
    """Null while what an earlier release wrote is not counted."""
    found: int


class CorpusReport(BaseModel):
    """Findings of a verification so far."""

    corpus_name: str
    corpus_id: str
    documents: int
    """That were compared, with those of the answers before."""
    wrong: list[WrongDocument]
    """Of this answer, the first 100."""
    wrong_documents: int
    """Of all answers so far."""
    figures: list[ComparedFigure] | None
    """At the end; null when something was published meanwhile, so that they cannot be compared."""
    sound: bool | None
    """Whether all is as expected; null before the end, and where the figures cannot be compared."""
    next_cursor: str | None
    """To continue; null at the end."""
