"""Rows of the catalogue of documents, as results change them: locks, fences, marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexmill.contracts.messages import Target
from indexmill.orchestrator.adapters.postgres.reads import PostgresReads
from indexmill.orchestrator.results.ports import Published


class DocumentRows(PostgresReads):
    """Row operations on documents, in the connection's transaction."""

    def lock_documents(self, targets: Sequence[Target]) -> dict[str, Published]:
        """Lock the documents, or make their rows; return what is published of them."""
        found = self._all(
            "lock_documents",
            documents=[target.document_id for target in targets],
            corpus_keys=[target.corpus_key for target in targets],
            urls=[target.url for target in targets],
        )
        return {
            row["document_id"]: Published(row["published"], row["job_id"], row["contested"]) for row in found
        }

    def other_model(self) -> bool:
        """Return whether documents had vectors of another model when the sweeper looked last."""
        return bool(self._all("other_model"))

    def keep_published(self, documents: Mapping[str, str]) -> None:
        """Note the jobs that found their document unchanged, by document id."""
        self._do("keep_published", documents=list(documents), jobs=list(documents.values()))

    def mark_stale(self, documents: Mapping[str, str]) -> None:
        """Mark documents whose page is gone, by document id with the job of their published version."""
        self._do("mark_stale", documents=list(documents), jobs=list(documents.values()))

    def raise_fences(self, generations: Mapping[str, int]) -> None:
        """Refuse these generations, by document id, and all before them."""
        self._do("raise_fences", documents=list(generations), generations=list(generations.values()))
