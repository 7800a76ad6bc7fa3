"""The published versions of documents, over the rows of the twin of the job store."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from indexmill.contracts.messages import Target
from indexmill.orchestrator.store.results import Published
from indexmill.orchestrator.store.rows import NewJob, OutboxRow

if TYPE_CHECKING:
    from tests.twins.jobs import InMemoryJobs

Row = dict[str, Any]
Table = Mapping[str, Row]


def previous(jobs: Table, document: Row | None) -> Row | None:
    """Return what a new job keeps of its document's published version."""
    job = jobs.get((document or {}).get("job_id") or "")
    if job is None:
        return None
    kept = {name: job[name] for name in ("title", "chunk_count")}
    return {**kept, "job_id": job["id"], "facts": job["determinism"] or {}}


def with_known(new: NewJob, before: Row | None, store: InMemoryJobs) -> OutboxRow:
    """Return a new job's message with the raw content that is known of its document."""
    known = store.jobs[before["job_id"]]["raw_ref"] if before else None
    if before is None:
        return new.first
    if (known or {}).get("stored_at") is None:
        return replace(new.first, payload=json.dumps({**json.loads(new.first.payload), "published": True}))
    document, facts = store.documents[new.target.document_id], before["facts"]
    digest = document["content_sha256"]
    made_alike = new.recipe is not None and facts.items() >= new.recipe.items()
    made_alike = made_alike and facts.get("accept") == new.accept
    current = made_alike and digest is not None and digest == facts.get("content_sha256") and not new.forced
    current = current and document["text_generation"] == document["published"]
    # No page's links are kept here.
    current = current and not new.linked
    payload = {**json.loads(new.first.payload), "published": True, "known": known}
    payload["current"] = current
    return replace(new.first, payload=json.dumps(payload))


def lock_documents(store: InMemoryJobs, targets: Sequence[Target]) -> dict[str, Published]:
    """Return what is published of the documents."""
    return {each.document_id: _of(store, each.document_id) for each in targets}


def raise_fences(store: InMemoryJobs, generations: Mapping[str, int]) -> None:
    """Refuse these generations, by document id, and all before them."""
    for document_id, generation in generations.items():
        row = store.document(document_id)
        row["min_generation"] = max(row["min_generation"], generation + 1)


def keep(store: InMemoryJobs, documents: Mapping[str, str]) -> None:
    """Note the jobs that found their document unchanged."""
    for document_id, job_id in documents.items():
        store.documents[document_id].update(job_id=job_id, stale_since=None)


def mark_stale(store: InMemoryJobs, documents: Mapping[str, str]) -> None:
    """Mark documents whose page is gone."""
    for document_id, job_id in documents.items():
        if store.documents[document_id]["job_id"] == job_id:
            store.documents[document_id]["stale_since"] = store.clock.now()


def stated(job: Row) -> Row:
    """Return a job's row with the columns that only statements have."""
    return {**job, **{name: (job["determinism"] or {}).get(name) for name in ("content_sha256", "page")}}


def shown(job: Row) -> Row:
    """Return a job's row with the columns in which its caller sees facts of its stages."""
    names = ("notes", "searchable_at", "generation", "chunks")
    return {**job, **{name: (job["determinism"] or {}).get(name) for name in names}}


def _of(store: InMemoryJobs, document_id: str) -> Published:
    document = store.document(document_id)
    own = (job for job in store.jobs.values() if job["document_id"] == document_id)
    contested = any(job["forced"] and job["status"] not in ("done", "failed") for job in own)
    return Published(document["published"], document["job_id"], contested, document.get("indexed_at"))
