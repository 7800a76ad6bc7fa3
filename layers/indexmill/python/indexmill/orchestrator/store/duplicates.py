"""Rows of duplicates: pages with the text of another document that they name."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from indexmill.platform.postgres.database import Statements


@dataclass(frozen=True, slots=True)
class PublishedText:
    """Searchable state of a document."""

    url: str
    text_sha256: str | None
    """None for what the first release published."""
    stale: bool


@dataclass(frozen=True, slots=True)
class Duplicate:
    """A page, and a document that it names or is a duplicate of."""

    document_id: str
    original: str
    text_sha256: str
    """Of the page."""
    holds: bool
    """Whether it is a duplicate of that one."""
    job_id: str
    """That read the page."""


@dataclass(frozen=True, slots=True)
class DueDuplicate:
    """A page that has to be read again, with its last job."""

    document_id: str
    job_id: str
    caller_id: str
    tier: str
    mark_stale: bool
    is_kept: bool
    """Whether it is not a duplicate, and its content was stored within a day."""


class Duplicates:
    """Row operations on duplicates."""

    _sql: Statements

    def lock_originals(self, documents: Collection[str]) -> None:
        """Lock those of the documents that have a row, so that none is published meanwhile."""
        self._sql.all("lock_originals", documents=list(documents))

    def originals_of(self, documents: Collection[str]) -> dict[str, str]:
        """Return the originals of those of the documents that are duplicates now, and those of these."""
        found = self._sql.all("originals_of", documents=list(documents))
        return {row["document_id"]: row["original"] for row in found}

    def published_texts(self, documents: Collection[str]) -> dict[str, PublishedText]:
        """Return what search has of the documents."""
        found = self._sql.all("published_texts", documents=list(documents))
        return {
            row["document_id"]: PublishedText(row["url"], row["text_sha256"], row["stale"]) for row in found
        }

    def keep_duplicates(self, read: Collection[str], rows: Sequence[Duplicate]) -> None:
        """Keep the rows; those of pages that were `read` replace all that were known of them."""
        self._sql.do(
            "keep_duplicates",
            read=list(read),
            documents=[row.document_id for row in rows],
            originals=[row.original for row in rows],
            texts=[row.text_sha256 for row in rows],
            holds=[row.holds for row in rows],
            jobs=[row.job_id for row in rows],
        )

    def mark_outdated(
        self, originals: Collection[str], pages: Collection[str], unread: Collection[str]
    ) -> None:
        """Mark what is no longer as it was found, of originals and of pages, to be read again; a day later
        those of the pages that were `unread`.
        """
        self._sql.do("mark_outdated", originals=list(originals), pages=list(pages), unread=list(unread))

    def due_duplicates(self, most: int) -> list[DueDuplicate]:
        """Return pages to read again, at most so many, and take their marks away."""
        return [DueDuplicate(**row) for row in self._sql.all("due_duplicates", most=most)]

    def put_off_duplicate(self, document_id: str) -> None:
        """Mark a page to be read again later."""
        self._sql.do("put_off_duplicate", document_id=document_id)
