"""Rows of deletions: what matches, the fence, the rows that go, and the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.types.json import Jsonb

from indexmill.orchestrator.store.actions import LockedJob, as_locked_job
from indexmill.orchestrator.store.rows import OutboxRow
from indexmill.platform.postgres.database import Statements

Counts = dict[str, dict[str, int]]
"""`before` and `after` by kind."""


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """A published document, of whichever caller."""

    document_id: str
    url: str
    chunk_count: int
    owner: str | None
    """The one caller who ever published it; "" for several, None for what is older than this is known."""


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion whose job is locked."""

    job_id: str
    generation: int
    requested_at: datetime
    removed: Counts
    referred: Counts
    whole: bool
    """Whether it is of a whole corpus."""


@dataclass(frozen=True, slots=True)
class ErasedDeletion:
    """A deletion whose rows are gone, to be reported."""

    job_id: str
    caller_id: str
    what: dict[str, Any]
    requested_at: datetime
    erased_at: datetime
    removed: Counts
    referred: Counts
    objects: list[str]
    """Keys of the bucket, and `message:` and `job:` with an id: what is this caller's alone. And `document:`
    with the ids of the first documents."""


@dataclass(frozen=True, slots=True)
class ErasedRows:
    """Rows of some documents that went: counts before by kind, and after."""

    removed: Counts
    referred: Counts
    objects: list[str]


class Deletions:
    """Row operations of deletions."""

    _sql: Statements

    def next_generation(self) -> int:
        """Return a number that is larger than those of all messages so far."""
        row = self._sql.one("next_generation")
        return int(row["generation"]) if row else 0

    def find_document(self, corpus_key: str, document_id: str) -> FoundDocument | None:
        """Return the corpus' document if it is published."""
        row = self._sql.one("find_document", corpus_key=corpus_key, document=document_id)
        return FoundDocument(**row) if row else None

    def corpus_name_of(self, owner: str, document_id: str) -> str | None:
        """Return the name of the document's corpus, if that is the owner's."""
        row = self._sql.one("corpus_name_of", owner=owner, document=document_id)
        return str(row["name"]) if row else None

    def key_of_corpus(self, owner: str, name: str) -> str:
        """Return the key of the owner's corpus, or the one that it will have."""
        row = self._sql.one("key_of_corpus", owner=owner, corpus_name=name)
        return str(row["key"]) if row else ""

    def free_name(self, corpus_key: str) -> None:
        """Let another corpus have the name of this one."""
        self._sql.do("free_name", corpus_key=corpus_key)

    def callers_of_document(self, corpus_key: str, document_id: str) -> set[str]:
        """Return the callers who have jobs of the document."""
        found = self._sql.all("callers_of_document", corpus_key=corpus_key, document=document_id)
        return {row["caller_id"] for row in found}

    def match_documents(
        self, corpus_key: str, url_prefix: str | None, caller_id: str, *, alone: bool
    ) -> list[tuple[str, str, int]]:
        """Return id, URL and number of chunks of the corpus' documents, in the order of their ids.

        `alone`: only those that the caller alone ever submitted.
        """
        values = {"url_prefix": url_prefix, "caller_id": caller_id, "alone": alone}
        found = self._sql.all("match_documents", corpus_key=corpus_key, **values)
        return [(row["document_id"], row["url"], row["chunk_count"]) for row in found]

    def corpus_exists(self, corpus_key: str) -> bool:
        """Return whether there is such a corpus."""
        return self._sql.found("corpus_exists", corpus_key=corpus_key)

    def erase_corpus(self, corpus_key: str, job_id: str) -> int:
        """Delete the corpus, with its name, unless it is in use again; return whether it went, as 0 or 1."""
        row = self._sql.one("erase_corpus", corpus_key=corpus_key, job_id=job_id)
        return int(row["gone"]) if row else 0

    def insert_deletion(self, row: OutboxRow, job: Mapping[str, Any], what: Mapping[str, Any]) -> None:
        """Insert the pending job, by its columns, with history and first message, and its deletion."""
        self._sql.do("insert_deletion", **job, what=Jsonb(dict(what)), id=row.id, payload=row.payload)

    def lock_document_jobs(self, corpus_key: str, documents: Sequence[str]) -> list[LockedJob]:
        """Lock and return the jobs of the documents that have not ended, in the order of ids."""
        found = self._sql.all("lock_document_jobs", corpus_key=corpus_key, documents=list(documents))
        return [as_locked_job(row) for row in found]

    def lock_corpus_jobs(self, corpus_key: str) -> list[LockedJob]:
        """Lock and return the jobs of the corpus that have not ended, in the order of ids."""
        return [as_locked_job(row) for row in self._sql.all("lock_corpus_jobs", corpus_key=corpus_key)]

    def lock_open_crawls(self, caller_id: str) -> None:
        """Let the caller's crawls add no page until the commit."""
        self._sql.all("lock_open_crawls", caller_id=caller_id)

    def fence_documents(
        self, job_id: str, documents: Sequence[str], generation: int, whole: str | None = None
    ) -> None:
        """Let no generation up to this one be published, also after the documents' rows are gone.

        `whole` is the key of a corpus all of whose documents are meant.
        """
        values = {"job_id": job_id, "documents": list(documents), "generation": generation, "whole": whole}
        self._sql.do("fence_documents", **values)

    def deletion(self, job_id: str) -> Deletion | None:
        """Lock and return the job's deletion."""
        row = self._sql.one("deletion", job_id=job_id)
        return Deletion(**row) if row else None

    def to_erase(self, job_id: str, most: int) -> list[str]:
        """Return the first documents of the deletion whose rows are still there."""
        return [row["id"] for row in self._sql.all("to_erase", job_id=job_id, most=most)]

    def to_erase_of_corpus(self, corpus_key: str, generation: int, most: int) -> list[str]:
        """Return documents of the corpus that were not erased yet by the deletion of this generation."""
        values = {"corpus_key": corpus_key, "generation": generation, "most": most}
        return [row["id"] for row in self._sql.all("to_erase_of_corpus", **values)]

    def erase_documents(self, of: Deletion, corpus_key: str, documents: Sequence[str]) -> ErasedRows:
        """Delete what there is of the documents, but for what a newer generation needs; count it twice."""
        values: dict[str, Any] = {"corpus_key": corpus_key, "documents": list(documents)}
        values |= {"generation": of.generation}
        own = {"job_id": of.job_id, "requested_at": of.requested_at, "whole": of.whole}
        before = self._sql.one("erase_documents", **values, **own)
        if before is None:
            raise LookupError(of.job_id)
        after = self._sql.one("left_of_documents", **values, messages=before["messages"])
        if after is None:
            raise LookupError(of.job_id)
        left = after["removed"]
        return ErasedRows(
            {kind: {"before": count, "after": left[kind]} for kind, count in before["removed"].items()},
            {
                kind: {"before": count, "after": after["referred"]}
                for kind, count in before["referred"].items()
            },
            before["objects"],
        )

    def keep_erased(self, of: Deletion, erased: ErasedRows) -> None:
        """Write the counts of the deletion so far, and add to its objects."""
        values = {"removed": Jsonb(erased.removed), "referred": Jsonb(erased.referred)}
        self._sql.do("keep_erased", job_id=of.job_id, objects=erased.objects, **values)

    def end_erasing(self, job_id: str) -> None:
        """Note that all rows are gone: the job waits for its report."""
        self._sql.do("end_erasing", job_id=job_id)

    def deletions_to_report(self, most: int) -> list[ErasedDeletion]:
        """Return deletions whose rows are gone, the oldest first."""
        return [ErasedDeletion(**row) for row in self._sql.all("deletions_to_report", most=most)]

    def end_deletion(self, job_id: str, report: Mapping[str, Any]) -> bool:
        """Keep the signed report, which ends the job; False when another sweeper did."""
        return bool(self._sql.all("end_deletion", job_id=job_id, report=Jsonb(dict(report))))

    def report(self, caller_id: str, job_id: str) -> dict[str, Any] | None:
        """Return the signed report of the caller's job; None when there is none, or not yet."""
        row = self._sql.one("report", caller_id=caller_id, job_id=job_id)
        return dict(row["report"]) if row and row["report"] else None
