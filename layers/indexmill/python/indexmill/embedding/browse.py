"""Browsing: the documents of a corpus, and the chunks of each."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, Protocol

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.http_documents import ChunkPage, DocumentChunk, DocumentItem, DocumentList
from indexmill.contracts.identity import CallerContext, CorpusIsolation
from indexmill.contracts.pages import cursor_of, foreign_cursor, values_of
from indexmill.embedding.corpora import named, unknown_corpus, without_hidden
from indexmill.embedding.ports import Named

Place = tuple[str, int]
"""URL and row of a document: where it is in the order of the list."""
ChunksRead = tuple[int, list[DocumentChunk]]
"""Generation of the version that is published, and chunks of it."""
TextRead = tuple[int, str | None, str]
"""Generation of the version that is published, its text and the text's digest; None where it is not kept."""

_DOCUMENT_ID: Final = re.compile("[0-9a-f]{64}")
_BEHIND_ALL: Final = "\U0010ffff"
"""Behind every URL."""
_SURROGATES: Final = range(0xD800, 0xE000)
_MOST_BYTES: Final = 6_200_000
"""Of a text in the JSON that Lambda takes; headers are beside it."""
_ALWAYS_FITS: Final = 1_000_000
"""Characters that are never more."""
_PAGE_BYTES: Final = 1_000_000
"""Of the chunks of one answer, in which each character can take up to four times its bytes."""
_BIGGEST: Final = 2**63
"""Beyond every number of a row."""


@dataclass(frozen=True, slots=True)
class DocumentFilter:
    """Documents that a list has."""

    limit: int
    stale: bool | None = None
    """True: only those whose page is gone; False: only the others."""
    content_type: str | None = None
    after: Place = ("", -1)
    below: str = _BEHIND_ALL
    """Only URLs in front of this text."""


class Catalogue(Protocol):
    """Reads documents of a corpus. All calls raise TransientError(database_unavailable)."""

    def corpus(self, corpus: Named) -> tuple[int, bool] | None:
        """Return the corpus's number and whether it is shared; None for one that the caller may not read."""
        ...

    def documents(self, corpus: int, wanted: DocumentFilter) -> list[tuple[Place, DocumentItem]]:
        """Return the documents that match, in the order of their URLs, each with its place in it."""
        ...

    def document(self, corpus: int, document_id: str) -> DocumentItem | None:
        """Return the published version; None for a document that is not in the corpus."""
        ...

    def chunks(self, corpus: int, document_id: str, after: int, limit: int) -> ChunksRead | None:
        """Return the published version's chunks behind the ordinal `after`; None as `document`."""
        ...

    def text(self, corpus: int, document_id: str) -> TextRead | None:
        """Return the published version's text; None as `document`."""
        ...


@dataclass(frozen=True, slots=True)
class Content:
    """The text that a document's chunks were cut from, or a part of it."""

    text: str
    length: int
    """Of the whole text, in characters."""
    generation: int
    sha256: str
    """Of the whole text."""


@dataclass(frozen=True, slots=True)
class BrowseCorpus:
    """Reads the documents that search sees in a corpus.

    All raise CallerError (corpus_name_invalid; not_found for a corpus or document that is unknown or another
    caller's; validation_error for a cursor that is not ours) and TransientError (database_unavailable).
    """

    catalogue: Catalogue
    isolation: CorpusIsolation = CorpusIsolation.CALLER

    def list(
        self,
        ctx: CallerContext,
        name: str,
        wanted: DocumentFilter,
        cursor: str | None = None,
        url_prefix: str = "",
    ) -> DocumentList:
        """Return one page of the documents whose URLs begin with `url_prefix`, in the order of their URLs."""
        after, limit = (url_prefix, -1), wanted.limit
        if cursor is not None:
            after = max(after, _place(cursor, str, int))
        page = replace(wanted, limit=limit + 1, after=after, below=behind(url_prefix))
        corpus, shared = self._corpus(ctx, name)
        found = self.catalogue.documents(corpus, page)
        shown = found[:limit]
        return DocumentList(
            documents=[_visible(document, shared=shared) for _, document in shown],
            count=len(shown),
            next_cursor=cursor_of(shown[-1][0]) if len(found) > limit else None,
        )

    def one(self, ctx: CallerContext, name: str, document_id: str) -> DocumentItem:
        """Return the published version of one document."""
        corpus, shared = self._corpus(ctx, name)
        found = self.catalogue.document(corpus, document_id) if _is_id(document_id) else None
        if found is None:
            raise _unknown_document()
        return _visible(found, shared=shared)

    def chunks(
        self, ctx: CallerContext, name: str, document_id: str, limit: int, cursor: str | None = None
    ) -> ChunkPage:
        """Return one page of a document's chunks, in order; also raises CallerError(invalid_transition).

        That is for a cursor of a version that is not the published one any more: no two pages mix versions.
        """
        generation, after = (None, -1) if cursor is None else _place(cursor, int, int)
        corpus, _ = self._corpus(ctx, name)
        found = self.catalogue.chunks(corpus, document_id, after, limit + 1) if _is_id(document_id) else None
        if found is None:
            raise _unknown_document()
        published, chunks = found
        if generation not in (None, published):
            raise CallerError(
                ErrorCode.INVALID_TRANSITION,
                "The document was published again since the first page.",
                field="query.cursor",
                hint="Read its chunks from the beginning, without a cursor.",
            )
        shown = _fitting(chunks[:limit])
        more = len(chunks) > len(shown)
        return ChunkPage(
            document_id=document_id,
            generation=published,
            chunks=shown,
            count=len(shown),
            next_cursor=cursor_of([published, shown[-1].ordinal]) if more else None,
        )

    def content(
        self, ctx: CallerContext, name: str, document_id: str, start: int = 0, end: int | None = None
    ) -> Content:
        """Return the text from the character `start` to `end`, which is behind the last one.

        Also raises CallerError: content_expired where the text is not kept, validation_error for a `start`
        behind the end, response_too_large.
        """
        if end is not None and end < start:
            raise CallerError(ErrorCode.VALIDATION_ERROR, "end is before start.", field="query.end")
        corpus, _ = self._corpus(ctx, name)
        found = self.catalogue.text(corpus, document_id) if _is_id(document_id) else None
        if found is None:
            raise _unknown_document()
        generation, text, sha256 = found
        if text is None:
            raise CallerError(
                ErrorCode.CONTENT_EXPIRED,
                "The text of this version is not kept: only its chunks are.",
                field="path.document_id",
                hint="Submit the document again. Of chunks that were sent without their text none is known.",
            )
        if start > len(text):
            message = f"The text has {len(text)} characters."
            raise CallerError(ErrorCode.VALIDATION_ERROR, message, field="query.start")
        part = text[start:end]
        if len(part) > _ALWAYS_FITS and len(json.dumps(part, ensure_ascii=False).encode()) > _MOST_BYTES:
            raise CallerError(
                ErrorCode.RESPONSE_TOO_LARGE,
                f"The answer would be larger than 6 MB; the text has {len(text)} characters.",
                hint=f"Ask for parts by start and end; {_ALWAYS_FITS} characters always fit.",
            )
        return Content(part, len(text), generation, sha256)

    def _corpus(self, ctx: CallerContext, name: str) -> tuple[int, bool]:
        """Return number of the corpus that the caller means by `name` (or id), and whether it is shared."""
        found = self.catalogue.corpus(named(self.isolation, ctx.caller_id, name, "path.name"))
        if found is None:
            raise unknown_corpus("path.name")
        return found


def _fitting(chunks: list[DocumentChunk]) -> list[DocumentChunk]:
    """Return the first chunks, at least one, that an answer has room for; a caller's own may be long."""
    sizes = accumulate(len(each.text.encode()) + len(each.context.encode()) for each in chunks)
    return chunks[: max(1, sum(size <= _PAGE_BYTES for size in sizes))]


def _visible(document: DocumentItem, *, shared: bool) -> DocumentItem:
    """Return the document as its reader sees it."""
    if not shared:
        return document
    return document.model_copy(update={"metadata": without_hidden(document.metadata)})


def _is_id(text: str) -> bool:
    return _DOCUMENT_ID.fullmatch(text) is not None


def _unknown_document() -> CallerError:
    return CallerError(ErrorCode.NOT_FOUND, "No such document.", field="path.document_id")


def behind(prefix: str) -> str:
    """Return the least text that is behind all that begin with `prefix`, by their code points."""
    cut = prefix.rstrip(_BEHIND_ALL)
    if not cut:
        return _BEHIND_ALL
    following = ord(cut[-1]) + 1
    return cut[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


def _place(cursor: str, *kinds: type) -> Any:
    """Return the values of a cursor; raises CallerError(validation_error) for those of another list."""
    values = values_of(cursor)
    if [type(each) for each in values] != [*kinds]:
        raise foreign_cursor()
    if not all(abs(each) < _BIGGEST for each in values if isinstance(each, int)):
        raise foreign_cursor()
    return tuple(values)
