"""End of deletions: the caller's own objects and items go, and the report is signed."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from operator import methodcaller
from typing import Final, Protocol

from indexmill.contracts.http_deletion import REPORT_TYPE, DeletionReport, Removed, Stays
from indexmill.orchestrator.settings import Lifetimes
from indexmill.orchestrator.store.deletions import Counts, ErasedDeletion
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.aws.signing import Signer

_MOST: Final = 20
"""Deletions of one tick."""
_QUEUES: Final = timedelta(days=14)


class Objects(Protocol):
    """The bucket, as a deletion needs it."""

    def remove(self, key: str) -> int:
        """Delete the object; return whether it was there, as 0 or 1. Raises TransientError."""
        ...

    def count(self, key: str) -> int:
        """Return whether it is there, as 0 or 1. Raises TransientError."""
        ...


@dataclass(frozen=True, slots=True)
class ReportDeletions:
    """Ends the deletions whose rows are gone. Two may run at once: one report counts."""

    store: JobStore
    objects: Objects
    items: Objects
    signer: Signer
    tombstones: timedelta
    lifetimes: Lifetimes
    space: tuple[str, int]
    """Today's model and dimension: kept vectors of unfinished documents are named by them."""

    def __call__(self) -> int:
        """Return how many were ended. Raises TransientError; the next tick continues."""
        ended = 0
        for deletion in self.store.read(lambda tx: tx.deletions_to_report(_MOST)):
            report = self._report(deletion, self._removed(deletion))
            signed = self.signer.sign(REPORT_TYPE, report.model_dump_json().encode())
            ended += self.store.transaction(methodcaller("end_deletion", deletion.job_id, signed))
        return ended

    def _removed(self, deletion: ErasedDeletion) -> Counts:
        """Delete the objects and items, and count them before and after."""
        before: Counter[str] = Counter(
            {"uploads/": 0, "dead-letters/": 0, "progress/": 0, "progress_items": 0}
        )
        after: Counter[str] = Counter(before)
        for each in deletion.objects:
            kind, _, name = each.partition(":")
            if kind == "document":
                continue
            store, key, label = self.objects, each, f"{each.partition('/')[0]}/"
            if kind == "message":
                key, label = self._vectors(name), "progress/"
            elif kind == "job":
                store, key, label = self.items, f"progress#{name}", "progress_items"
            before[label] += store.remove(key)
            after[label] += store.count(key)
        return {label: {"before": count, "after": after[label]} for label, count in before.items()}

    def _vectors(self, message_id: str) -> str:
        """Return the key of the vectors that an unfinished document's message left, as Embedding names it."""
        model, dimension = self.space
        name = f"{model}\0{dimension}\0{message_id}"
        return f"progress/{hashlib.sha256(name.encode()).hexdigest()}"

    def _report(self, deletion: ErasedDeletion, objects: Counts) -> DeletionReport:
        removed = {**deletion.removed, **objects}
        named = [each.removeprefix("document:") for each in deletion.objects if each.startswith("document:")]
        return DeletionReport(
            job_id=deletion.job_id,
            caller_id=deletion.caller_id,
            what=deletion.what,
            requested_at=deletion.requested_at,
            erased_at=deletion.erased_at,
            documents=removed.pop("documents", {}).get("before", 0),
            document_ids=sorted(named),
            removed={kind: Removed(**counts) for kind, counts in sorted(removed.items())},
            referred={f"{kind}/": Removed(**counts) for kind, counts in sorted(deletion.referred.items())},
            stays=self._stays(deletion.erased_at),
        )

    def _stays(self, at: datetime) -> list[Stays]:
        """Return what is left, by which rule, and until when at the latest."""

        def until(days: int) -> datetime:
            return at + timedelta(days=days)

        kept = self.lifetimes
        return [
            Stays(
                what="ids, times, codes and causes of the jobs; their history, with details of failures",
                why="audit",
                until=None,
            ),
            Stays(what="tombstones: ids and generations", why="fence", until=at + self.tombstones),
            Stays(
                what="messages in queues and dead-letter queues, which find the fence",
                why="a queue cannot be searched",
                until=at + _QUEUES,
            ),
            Stays(
                what="stored content that nothing refers to (raw/)",
                why="lifecycle rule",
                until=until(kept.raw),
            ),
            Stays(
                what="text, chunks and results of /enqueue (text/, chunks/)",
                why="lifecycle rule",
                until=until(30),
            ),
            Stays(what="delivery records: ids and codes", why="expiry of the item", until=until(15)),
            Stays(what="log lines, without query strings", why="LogRetentionDays", until=until(kept.logs)),
            Stays(what="audit events: ids and codes", why="AuditRetentionDays", until=until(kept.audit)),
            Stays(what="backups of the database", why="DatabaseBackupDays", until=until(kept.backups)),
        ]
