"""Accepting jobs: one transaction for the rows, the held messages, and the admission of what may start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.adapters import submission_sql as sql
from indexmill.orchestrator.adapters.postgres_admission import admit
from indexmill.orchestrator.adapters.postgres_forecast import Forecasts
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import Accepted, NewJob, Submission
from indexmill.platform.adapters.postgres import Connection


def submit(connection: Connection, jobs: Sequence[NewJob], forecasts: Forecasts) -> Submission:
    """Accept `jobs`, which share caller and corpus, within the caller's transaction."""
    caller_id = jobs[0].target.caller_id
    expected = forecasts.promise(connection, caller_id, jobs[0].tier, len(jobs))
    new = {
        row[0]
        for row in connection.execute(sql.SUBMIT, {**_parameters(jobs), "expected": expected}).fetchall()
    }
    known = _in_flight(connection, [job for job in jobs if job.job_id not in new])
    accepted = [_accepted(job, new, known) for job in jobs]
    return Submission(accepted, admit(connection, forecasts.limits, [caller_id]), max(expected))


def _in_flight(connection: Connection, refused: Sequence[NewJob]) -> dict[str, tuple[str, str]]:
    if not refused:
        return {}
    documents = [job.target.document_id for job in refused]
    rows = connection.execute(sql.IN_FLIGHT, (documents, [job.job_id for job in refused])).fetchall()
    return {document: (job_id, status) for document, job_id, status in rows}


def _accepted(job: NewJob, new: set[str], known: dict[str, tuple[str, str]]) -> Accepted:
    if job.job_id in new or job.target.document_id not in known:
        return Accepted(job.job_id, JobStatus.PENDING)
    job_id, status = known[job.target.document_id]
    return Accepted(job_id, JobStatus(status), deduplicated=job_id != job.job_id)


def _parameters(jobs: Sequence[NewJob]) -> dict[str, Any]:
    target = jobs[0].target
    return {
        "job_ids": [job.job_id for job in jobs],
        "urls": [job.submitted_url for job in jobs],
        "canonical": [job.target.url for job in jobs],
        "documents": [job.target.document_id for job in jobs],
        "outbox_ids": [job.first.id for job in jobs],
        "payloads": [job.first.payload for job in jobs],
        "priorities": [job.priority for job in jobs],
        "forced": [job.forced for job in jobs],
        "digests": [job.payload_digest for job in jobs],
        "corpus_key": target.corpus_key,
        "caller_id": target.caller_id,
        "corpus_name": target.corpus_name,
        "batch_id": jobs[0].batch_id,
        "tier": jobs[0].tier,
        "job_type": jobs[0].job_type,
        "first": FIRST,
    }
