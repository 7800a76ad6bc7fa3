"""Corpora of a caller: which there are, and their figures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_corpora import Corpus, CorpusGrants, CorpusList, Grant
from indexmill.contracts.identity import CORPUS_ID, CallerContext, CorpusIsolation, corpus_name
from indexmill.contracts.pages import cursor_of, foreign_cursor, values_of
from indexmill.embedding.ports import Named

_ID: Final = re.compile(CORPUS_ID)
MAX_GRANTS: Final = 100
"""Of a corpus."""
_PLACE: Final = 2
"""Values of a cursor: the name and the id of the last corpus of a page."""


def named(
    isolation: CorpusIsolation, caller_id: str, text: str | None, field: str = "body.corpus_name"
) -> Named:
    """Return the corpus that the caller means by `text`, for a route that reads.

    Raises CallerError(corpus_name_invalid).
    """
    owner = isolation.owner(caller_id)
    if text is not None and _ID.fullmatch(text):
        return Named(caller_id, owner, public_id=text.removeprefix("corpus_"))
    return Named(caller_id, owner, name=corpus_name(text, field))


def is_hidden(name: str) -> bool:
    """Return whether metadata of this name is not for callers that a corpus is shared with."""
    return name.startswith("_")


def without_hidden(metadata: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the metadata that callers see whom the corpus is shared with; None for none."""
    return {name: value for name, value in (metadata or {}).items() if not is_hidden(name)} or None


def shown(corpus: Named) -> str:
    """Return what the caller named the corpus."""
    return corpus.name or f"corpus_{corpus.public_id}"


def unknown_corpus(field: str | None = None) -> CallerError:
    """Return the error for an unknown corpus, and for one that the caller may not read."""
    return CallerError(ErrorCode.NOT_FOUND, "No such corpus.", field=field)


Who = dict[str, str | None]
"""A caller as the audit shows it: id, type, tier and request."""


class CorpusRows(Protocol):
    """Reads corpora. All calls raise TransientError(database_unavailable)."""

    def list(self, of: Named, after: tuple[str, str] | None, limit: int) -> Sequence[Corpus]:
        """Return the corpora that the caller may read, by name and id, behind that name and id."""
        ...

    def find(self, corpus: Named) -> Corpus | None:
        """Return the corpus; None for one that is unknown or that the caller may not read."""
        ...

    def grants(self, corpus: Named) -> Sequence[Grant] | None:
        """Return who may read the owner's corpus; None for an unknown one."""
        ...

    def rename(self, corpus: Named, name: str, who: Who) -> bool | None:
        """Give the owner's corpus the name; False when another one has it, None for an unknown corpus.

        `who` is the caller, for the audit.
        """
        ...

    def share(self, corpus: Named, grantee: str, most: int, who: Who) -> bool | None:
        """Let a caller read the owner's corpus; False when `most` others may already, None as `rename`."""
        ...

    def unshare(self, corpus: Named, grantee: str, who: Who) -> bool | None:
        """Let a caller read the owner's corpus no more; None for an unknown corpus."""
        ...


@dataclass(frozen=True, slots=True)
class ReadCorpora:
    """Lists corpora and reads their figures."""

    rows: CorpusRows
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def list(self, ctx: CallerContext, limit: int, cursor: str | None) -> CorpusList:
        """Return one page; raises CallerError(validation_error) for a cursor that is not ours."""
        of = Named(ctx.caller_id, self.isolation.owner(ctx.caller_id))
        found = self.rows.list(of, None if cursor is None else _place(cursor), limit + 1)
        page = list(found[:limit])
        more = len(found) > limit
        return CorpusList(
            corpora=page,
            count=len(page),
            next_cursor=cursor_of([page[-1].corpus_name, page[-1].corpus_id]) if more else None,
        )

    def get(self, ctx: CallerContext, text: str) -> Corpus:
        """Return one corpus; raises CallerError(corpus_name_invalid, not_found)."""
        found = self.rows.find(named(self.isolation, ctx.caller_id, text, "path.name"))
        if found is None:
            raise unknown_corpus("path.name")
        return found


@dataclass(frozen=True, slots=True)
class ChangeCorpora:
    """Acts of the owner of a corpus on it; of an internal caller on one that all callers share."""

    rows: CorpusRows
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def rename(self, ctx: CallerContext, text: str, name: str, request_id: str) -> Corpus:
        """Give the corpus another name. Jobs that are in flight stay with it.

        Raises CallerError: corpus_name_invalid, forbidden, not_found, invalid_transition for the name of
        another corpus.
        """
        corpus = self._own(ctx, text)
        new = Named(corpus.caller_id, corpus.owner, name=corpus_name(name, "body.new_name"))
        renamed = self.rows.rename(corpus, new.name or "", who(ctx, request_id))
        if renamed is False:
            message = "Another corpus has this name."
            raise CallerError(ErrorCode.INVALID_TRANSITION, message, field="body.new_name")
        found = self.rows.find(new) if renamed else None
        if found is None:
            raise unknown_corpus("path.name")
        return found

    def grants(self, ctx: CallerContext, text: str) -> CorpusGrants:
        """Return who may read the corpus beside its owner. Raises CallerError as `rename`."""
        return self._granted(self._own(ctx, text))

    def share(self, ctx: CallerContext, text: str, grantee: str, request_id: str) -> CorpusGrants:
        """Let a caller read the corpus by its id. Raises CallerError as `rename`."""
        corpus = self._own(ctx, text)
        if self.rows.share(corpus, grantee, MAX_GRANTS, who(ctx, request_id)) is False:
            message = f"At most {MAX_GRANTS} callers may read a corpus beside its owner."
            raise CallerError(ErrorCode.INVALID_TRANSITION, message, field="body.caller_id")
        return self._granted(corpus)

    def unshare(self, ctx: CallerContext, text: str, grantee: str, request_id: str) -> CorpusGrants:
        """Let a caller read the corpus no more. Raises CallerError as `rename`."""
        corpus = self._own(ctx, text)
        self.rows.unshare(corpus, grantee, who(ctx, request_id))
        return self._granted(corpus)

    def _granted(self, corpus: Named) -> CorpusGrants:
        found, grants = self.rows.find(corpus), self.rows.grants(corpus)
        if found is None or grants is None:
            raise unknown_corpus("path.name")
        return CorpusGrants(corpus_name=found.corpus_name, corpus_id=found.corpus_id, grants=list(grants))

    def _own(self, ctx: CallerContext, text: str) -> Named:
        if self.isolation is CorpusIsolation.SHARED and not ctx.internal:
            raise CallerError(
                ErrorCode.FORBIDDEN, "Corpora that all callers share are changed by internal callers only."
            )
        return named(self.isolation, ctx.caller_id, text, "path.name")


def who(ctx: CallerContext, request_id: str) -> Who:
    """Return the caller as the audit shows it."""
    return {
        "caller_id": ctx.caller_id,
        "caller_type": ctx.caller_type,
        "tier": ctx.tier,
        "request_id": request_id or None,
    }


def _place(cursor: str) -> tuple[str, str]:
    values = values_of(cursor)
    if len(values) != _PLACE or not all(isinstance(each, str) for each in values):
        raise foreign_cursor()
    name, corpus_id = values
    if _ID.fullmatch(corpus_id) is None:
        raise foreign_cursor()
    return name, corpus_id.removeprefix("corpus_")
