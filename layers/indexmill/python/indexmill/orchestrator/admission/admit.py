"""Admission of pending jobs, inside the transaction that submits or ends others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from indexmill.orchestrator.admission.choose import choose, free_slots
from indexmill.orchestrator.job_store import JobStore, JobsTx
from indexmill.orchestrator.ports import OutboxRow

_CALLERS_AT_ONCE: Final = 50
"""Their locks are kept for one transaction."""


def admit(tx: JobsTx, callers: Sequence[str], done: Sequence[str] = ()) -> list[OutboxRow]:
    """Start the pending jobs of `callers`, and of others that wait for capacity; return their messages.

    Call it last in a transaction: it locks the callers until the commit. `done` are the jobs that were done
    in it. This process has the lease of the messages.
    """
    found = tx.queues_to_admit(callers, done)
    if found is None:
        return []
    queues, overall = found
    choice = choose(queues, tx.limits, overall)
    if choice.held:
        tx.mark_waiting_for_capacity(choice.held)
    usages = [queue.usage for queue in queues]
    full = {usage.caller_id for usage in usages if free_slots(usage, tx.limits.of(usage.tier)) == 0}
    if others := sorted(full - set(callers)):
        tx.clear_waiting_for_capacity(others)
    return tx.start_jobs(choice.start) if choice.start else []


def admit_all(store: JobStore) -> list[OutboxRow]:
    """Start every pending job that may start, some callers at a time, and return the messages."""
    callers = store.read(lambda tx: tx.waiting_callers())
    rows: list[OutboxRow] = []
    for at in range(0, len(callers), _CALLERS_AT_ONCE):
        rows += store.transaction(partial(admit, callers=callers[at : at + _CALLERS_AT_ONCE]))
    return rows
