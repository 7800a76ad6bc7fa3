"""Verification: whether search has what the catalogue of a corpus says, and whether its figures add up."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_corpora import ComparedFigure, CorpusReport, WrongDocument
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.pages import cursor_of, foreign_cursor, values_of
from indexmill.embedding.corpora import CorpusRows, named, unknown_corpus
from indexmill.embedding.ports import Named
from indexmill.platform.time import Clock

_SHOWN: Final = 100
_TERMS: Final = 2**31
_SLICE: Final = 2_000_000
"""Postings of one statement, about."""
_MOST_SLICES: Final = 500
"""Whatever a cursor says of postings."""
_SUMS: Final = ("documents", "chunks", "words", "bytes", "postings")


class Holdings(Protocol):
    """Reads what there is of a corpus. All calls raise TransientError(database_unavailable)."""

    def number(self, corpus: Named) -> int | None:
        """Return the corpus's number; None for one that is unknown or that the caller may not read."""
        ...

    def figures(self, corpus: int) -> Mapping[str, Any]:
        """Return the stored figures by name, and when a publish changed them last."""
        ...

    def documents(self, corpus: int, after: int, limit: int) -> Sequence[Mapping[str, Any]]:
        """Return what there is of the documents behind the row `after`."""
        ...

    def postings(self, corpus: int, first: int, behind: int) -> int:
        """Count the postings of terms from `first` on, in front of `behind`."""
        ...

    def recount(self, corpus: int) -> None:
        """Have documents and bytes counted again."""
        ...


@dataclass(slots=True)
class _Progress:
    """Progress of a verification: the content of its cursor."""

    after: int
    wrong: int
    sums: list[int]
    """Beside `_SUMS`; of postings, how many the chunks should have."""
    version: str
    """Of the stored figures, at the beginning."""


@dataclass(frozen=True, slots=True)
class VerifyCorpus:
    """Compares every document of a corpus, for as long as a request may take; the next one continues."""

    rows: CorpusRows
    holdings: Holdings
    clock: Clock
    isolation: CorpusIsolation = CorpusIsolation.CALLER
    limit_s: float = 15.0
    page: int = 500
    """Documents of one statement."""

    def __call__(self, ctx: CallerContext, text: str, cursor: str | None) -> CorpusReport:
        """Return what was found.

        Raises CallerError: corpus_name_invalid, not_found, also for a corpus that the caller may only read,
        and validation_error for a cursor that is not ours.
        """
        until = self.clock.monotonic() + self.limit_s
        asked = named(self.isolation, ctx.caller_id, text, "path.name")
        found, corpus = self.rows.find(asked), self.holdings.number(asked)
        if found is None or corpus is None or found.access != "write":
            raise unknown_corpus("path.name")
        done = self._begun(corpus) if cursor is None else _continued(cursor)
        wrong, more = [], True
        while more:
            held = self.holdings.documents(corpus, done.after, self.page)
            wrong += [each for each in held if _is_wrong(each)]
            _add(done, held)
            more = len(held) == self.page
            if self.clock.monotonic() >= until:
                break
        done.wrong += len(wrong)
        figures = None if more else self._compared(corpus, done)
        unequal = figures is not None and any(each.stored not in (None, each.found) for each in figures)
        return CorpusReport(
            corpus_name=found.corpus_name,
            corpus_id=found.corpus_id,
            documents=done.sums[0],
            wrong=[WrongDocument.model_validate(each) for each in wrong[:_SHOWN]],
            wrong_documents=done.wrong,
            figures=figures,
            sound=False if done.wrong or unequal else None if figures is None else True,
            next_cursor=cursor_of([done.after, done.wrong, done.sums, done.version]) if more else None,
        )

    def _begun(self, corpus: int) -> _Progress:
        return _Progress(-1, 0, [0] * len(_SUMS), _version(self.holdings.figures(corpus)))

    def _compared(self, corpus: int, done: _Progress) -> list[ComparedFigure] | None:
        """Return the figures beside what was found; None when a publish has changed either meanwhile."""
        slices = min(1 + done.sums[-1] // _SLICE, _MOST_SLICES)
        bounds = [_TERMS * at // slices for at in range(slices + 1)]
        postings = sum(self.holdings.postings(corpus, first, behind) for first, behind in pairwise(bounds))
        stored = self.holdings.figures(corpus)
        if _version(stored) != done.version:
            return None
        found = dict(zip(_SUMS, done.sums, strict=True))
        if any(stored[name] not in (None, found[name]) for name in ("documents", "bytes")):
            self.holdings.recount(corpus)
        counted = {**stored, "postings": postings}
        return [ComparedFigure(name=name, stored=counted[name], found=found[name]) for name in _SUMS]


def _version(stored: Mapping[str, Any]) -> str:
    """Return a digest of the stored figures, which changes with each publish that changes what they count."""
    return hashlib.sha256(repr(sorted(stored.items())).encode()).hexdigest()[:16]


def _is_wrong(held: Mapping[str, Any]) -> bool:
    parts = (held["chunks"], held["texts"], held["vectors"], held["numbered"])
    return held["superseded"] > 0 or any(part != held["expected"] for part in parts)


def _add(done: _Progress, documents: Sequence[Mapping[str, Any]]) -> None:
    for held in documents:
        added = (held["published"], held["texts"], held["words"], held["bytes"], held["terms"])
        done.sums = [total + int(more) for total, more in zip(done.sums, added, strict=True)]
        done.after = held["row_id"]


def _continued(cursor: str) -> _Progress:
    try:
        after, wrong, sums, version = values_of(cursor)
        numbers = [after + 1, wrong, *sums]
        sound = len(sums) == len(_SUMS) and all(type(each) is int and 0 <= each < 2**62 for each in numbers)
    except (TypeError, ValueError, CallerError) as error:
        raise _foreign() from error
    if not sound or not isinstance(version, str):
        raise _foreign()
    return _Progress(after, wrong, sums, version)


def _foreign() -> CallerError:
    message = foreign_cursor().message
    return CallerError(ErrorCode.VALIDATION_ERROR, message, field="body.cursor")
