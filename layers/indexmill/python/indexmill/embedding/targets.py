"""Target document and generation of a caller's direct write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from indexmill.contracts.content import Chunk
from indexmill.contracts.identity import CorpusIsolation, corpus_name, document_id
from indexmill.contracts.messages import Target

CanonicalUrl = Callable[[str], str]
"""Returns the one spelling of a URL, or raises CallerError."""
_GAP = 2
"""Texts of one document are counted as if separated by a blank line."""


class Generations(Protocol):
    """Numbers for writes that no job issued. Raises TransientError(database_unavailable)."""

    def next(self) -> int:
        """Return a number larger than every one before."""
        ...


@dataclass(frozen=True, slots=True)
class JobTarget:
    """A job's document, and how far the job is."""

    target: Target
    status: str
    attempt: int
    generation: int | None
    """That its document may be published with; None before it was embedded."""


class JobTargets(Protocol):
    """Reads what an internal caller's direct write needs of a job. Raises TransientError."""

    def find(self, job_id: str) -> JobTarget | None:
        """Return the job's; None for an unknown one."""
        ...


def target_of(
    caller_id: str, name: str | None, url: str, canonical: CanonicalUrl, isolation: CorpusIsolation
) -> Target:
    """Return the document that `url` names in the corpus that the caller means by `name`.

    Raises CallerError: corpus_name_invalid, or what `canonical` finds wrong with the URL.
    """
    corpus, spelling = corpus_name(name), canonical(url)
    key = isolation.key(caller_id, corpus)
    return Target(
        caller_id=caller_id,
        corpus_name=corpus,
        corpus_key=key,
        document_id=document_id(key, spelling),
        url=spelling,
    )


def chunks_of(texts: list[str]) -> list[Chunk]:
    """Return the texts as the chunks of a document that consists of them."""
    starts = accumulate((len(text) + _GAP for text in texts), initial=0)
    return [
        Chunk(ordinal=ordinal, text=text, start=start, end=start + len(text), tokens=0)
        for ordinal, (text, start) in enumerate(zip(texts, starts, strict=False))
    ]
