"""Duplicates that are outdated: their pages are read again, by jobs that repeat their last ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from indexmill.orchestrator.actions.replay import repeated
from indexmill.orchestrator.admission.admit import budget_of, with_turns
from indexmill.orchestrator.store.duplicates import DueDuplicate
from indexmill.orchestrator.store.jobs import JobStore, JobsTx

MOST = 100
"""Pages of one tick."""


def read_again(store: JobStore, make_id: Callable[[], str]) -> int:
    """Insert pending jobs for pages that are due; return how many.

    A page whose job was a duplicate is fetched. One that is published beside its original is read from its
    stored content while that is certainly kept: that its text is the same is known already.
    """
    ids = [(make_id(), make_id()) for _ in range(MOST)]
    return store.transaction(
        lambda tx: sum(_read(tx, due, *own) for due, own in zip(tx.due_duplicates(MOST), ids, strict=False))
    )


def _read(tx: JobsTx, due: DueDuplicate, job_id: str, message_id: str) -> bool:
    original = tx.original(due.caller_id, due.job_id)
    if original is None:
        return False
    stored = original.stored if due.is_kept else None
    new = replace(
        repeated(original, stored, tx.kept_payloads(due.job_id), job_id, message_id),
        tier=due.tier,
        priority=original.job.priority,
        mark_stale=due.mark_stale,
        budget=budget_of(original.job.budget, tx.limits.of(due.tier)),
    )
    jobs = with_turns(tx, [new], replays=True) if stored is None else [new]
    if tx.insert_jobs(jobs, {job_id: None}, {}):
        return True
    tx.put_off_duplicate(due.document_id)
    return False
