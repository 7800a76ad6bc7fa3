"""Rows of duplicates: pages with the text of another document that they name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from indexmill.orchestrator.adapters.postgres.documents import DocumentRows
from indexmill.orchestrator.results.ports import DueDuplicate, Duplicate, PublishedText


class DuplicateRows(DocumentRows):
    """Row operations on duplicates, in the connection's transaction."""

    def lock_originals(self, documents: Collection[str]) -> None:
        """Lock those of the documents that have a row, so that none is published meanwhile."""
        self._all("lock_originals", documents=list(documents))

    def originals_of(self, documents: Collection[str]) -> dict[str, str]:
        """Return the originals of those of the documents that are duplicates now, and those of these."""
        found = self._all("originals_of", documents=list(documents))
        return {row["document_id"]: row["original"] for row in found}

    def published_texts(self, documents: Collection[str]) -> dict[str, PublishedText]:
        """Return what search has of the documents."""
        found = self._all("published_texts", documents=list(documents))
        return {
            row["document_id"]: PublishedText(row["url"], row["text_sha256"], row["stale"]) for row in found
        }

    def keep_duplicates(self, read: Collection[str], rows: Sequence[Duplicate]) -> None:
        """Keep the rows; those of pages that were `read` replace all that were known of them."""
        self._do(
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
        self._do("mark_outdated", originals=list(originals), pages=list(pages), unread=list(unread))

    def due_duplicates(self, most: int) -> list[DueDuplicate]:
        """Return pages to read again, at most so many, and take their marks away."""
        return [DueDuplicate(**row) for row in self._all("due_duplicates", most=most)]

    def put_off_duplicate(self, document_id: str) -> None:
        """Mark a page to be read again later."""
        self._do("put_off_duplicate", document_id=document_id)
