"""Direct writes of a caller: target document, generation, and the day's count of chunks, which jobs share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from indexmill.contracts.content import Chunk, SourceText
from indexmill.contracts.errors import CallerError, ErrorCode, TransientError, full_corpus
from indexmill.contracts.identity import (
    CallerContext,
    CorpusIsolation,
    Quota,
    corpus_name,
    document_id,
    next_midnight,
    tier_of,
)
from indexmill.contracts.messages import Target
from indexmill.embedding.ports import ChunkCounts
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

CanonicalUrl = Callable[[str], str]
"""Returns the one spelling of a URL, or raises CallerError."""
_GAP = "\n\n"
"""Texts of one document are separated by a blank line."""


class Generations(Protocol):
    """Numbers for writes that no job issued. Raises TransientError(database_unavailable)."""

    def next(self) -> int:
        """Return a number larger than every one before."""
        ...

    def place(self, owner: str, caller_id: str, name: str) -> tuple[str, int, int]:
        """Return the key of the corpus, which is made when it is new, such a number, and its chunks."""
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
    caller_id: str,
    name: str | None,
    url: str,
    canonical: CanonicalUrl,
    isolation: CorpusIsolation,
    generations: Generations,
) -> tuple[Target, int, int]:
    """Return the document that `url` names in the corpus that the caller means by `name`.

    With it come a generation and the number of chunks that the corpus has.

    Raises CallerError: corpus_name_invalid, or what `canonical` finds wrong with the URL; TransientError.
    """
    corpus, spelling = corpus_name(name), canonical(url)
    key, generation, chunks = generations.place(isolation.owner(caller_id), caller_id, corpus)
    target = Target(
        caller_id=caller_id,
        corpus_name=corpus,
        corpus_key=key,
        document_id=document_id(key, spelling),
        url=spelling,
    )
    return target, generation, chunks


def chunks_of(texts: list[str]) -> tuple[list[Chunk], SourceText | None]:
    """Return the texts as the chunks of a document that consists of them, and that document's text."""
    starts = accumulate((len(text) + len(_GAP) for text in texts), initial=0)
    chunks = [
        Chunk(ordinal=ordinal, text=text, start=start, end=start + len(text), tokens=0)
        for ordinal, (text, start) in enumerate(zip(texts, starts, strict=False))
    ]
    return chunks, SourceText.of(_GAP.join(texts), chunks)


@dataclass(frozen=True, slots=True)
class ChunkQuota:
    """Counts the chunks of standalone requests; the system's own callers work for jobs, which count too."""

    quotas: Mapping[str, Quota]
    """By tier."""
    counts: ChunkCounts
    clock: Clock
    observability: Observability

    def check_corpus(self, caller: CallerContext, chunks: int) -> None:
        """Check that a corpus with so many chunks may have more. Raises CallerError(quota_exceeded)."""
        most = self.quotas[tier_of(caller.tier)].corpus_chunks
        if most is not None and chunks >= most and not caller.internal:
            raise full_corpus()

    @contextmanager
    def used(self, caller: CallerContext, chunks: int, field: str) -> Iterator[None]:
        """Count `chunks` for the work of this block; those of a block that raises are taken back.

        Raises CallerError(quota_exceeded) when the day's quota does not suffice; `field` is the request's.
        While Postgres is unavailable nothing is counted and nothing refused.
        """
        most = self.quotas[tier_of(caller.tier)].chunks_per_day
        if most is None or caller.internal:
            yield
            return
        counted = self._count(caller.caller_id, chunks, most, field)
        try:
            yield
        except Exception:
            if counted:
                self._try(caller.caller_id, -chunks, most)
            raise

    def _count(self, caller_id: str, chunks: int, most: int, field: str) -> bool:
        """Return whether the chunks were counted."""
        counted = self._try(caller_id, chunks, most)
        if counted is None:
            now = self.clock.now()
            raise CallerError(
                ErrorCode.QUOTA_EXCEEDED,
                f"Your chunks of the day do not suffice for {chunks} more; a day has {most}.",
                field=field,
                retry_after=math.ceil((next_midnight(now) - now).total_seconds()),
                hint="Send fewer, or wait until midnight UTC.",
            )
        return counted

    def _try(self, caller_id: str, chunks: int, most: int) -> bool | None:
        """Return whether the chunks were counted; None when they would be too many."""
        try:
            return True if self.counts.add(caller_id, chunks, most) else None
        except TransientError as error:
            self.observability.log.warning("chunk_quota.unavailable", extra={"code": error.code})
            self.observability.count("chunk_quota_unavailable_total")
            return False
