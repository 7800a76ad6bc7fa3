"""Accepting jobs: one transaction for the rows, the held messages, and the admission of what may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.adapters import submission_sql as sql
from indexmill.orchestrator.adapters.postgres_admission import admit
from indexmill.orchestrator.adapters.postgres_dependencies import connect
from indexmill.orchestrator.adapters.postgres_forecast import Forecasts
from indexmill.orchestrator.forecast import last_of
from indexmill.orchestrator.idempotency import idempotency_conflict
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import Accepted, NewJob, Once, Submission
from indexmill.platform.postgres.database import Connection

_LOOKS = 3
"""How often a job is tried whose predecessor on the same document ends at just this moment."""


def submit(
    connection: Connection, jobs: Sequence[NewJob], forecasts: Forecasts, once: Once | None = None
) -> Submission:
    """Accept `jobs`, which share caller and corpus, within the caller's transaction."""
    caller_id = jobs[0].target.caller_id
    kept = _kept_answer(connection, caller_id, once) if once else None
    if kept is not None:
        return Submission([], [], answer=kept)
    expected = forecasts.promise(connection, jobs)
    accepted, new = _accept(connection, jobs, expected)
    if jobs[0].depends_on:
        connect(connection, caller_id, new, jobs[0].depends_on)
    if once:
        answer = once.answer(accepted, last_of(each.expected_by for each in accepted))
        connection.execute(sql.KEEP_ANSWER, (answer, caller_id, once.key))
    rows = admit(connection, forecasts.limits, [caller_id])
    return Submission(accepted, rows, expected_by=last_of(each.expected_by for each in accepted))


def _kept_answer(connection: Connection, caller_id: str, once: Once) -> str | None:
    """Take the key for this submit and return None, or return what the submit that has it answered."""
    if connection.execute(sql.TAKE_KEY, (caller_id, once.key, once.digest)).fetchone():
        return None
    row = connection.execute(sql.KEPT_ANSWER, (caller_id, once.key)).fetchone()
    if row is None or row[0] != once.digest:
        raise idempotency_conflict()
    return str(row[1])


def _accept(
    connection: Connection, jobs: Sequence[NewJob], expected: Mapping[str, datetime | None]
) -> tuple[list[Accepted], list[str]]:
    """Return what each job became, and the ids of those that are new."""
    found: dict[str, Accepted] = {}
    new: list[str] = []
    for _ in range(_LOOKS):
        left = [job for job in jobs if job.job_id not in found]
        if not left:
            break
        inserted = {row[0] for row in connection.execute(sql.SUBMIT, _parameters(left, expected)).fetchall()}
        new += inserted
        found |= {
            job_id: Accepted(job_id, JobStatus.PENDING, expected_by=expected[job_id]) for job_id in inserted
        }
        # What is not found now was at work when we inserted and has ended since: it is inserted next time.
        found |= _at_work(connection, [job for job in left if job.job_id not in inserted])
    if any(job.job_id not in found for job in jobs):
        raise TransientError(
            ErrorCode.DATABASE_UNAVAILABLE, "The jobs of these documents change too fast.", retry_after=1
        )
    return [found[job.job_id] for job in jobs], new


def _at_work(connection: Connection, refused: Sequence[NewJob]) -> dict[str, Accepted]:
    """Return the jobs at work on the refused ones' documents, by the refused one's id."""
    if not refused:
        return {}
    documents = [job.target.document_id for job in refused]
    own = {job.job_id for job in refused}
    found: dict[str, Accepted] = {}
    known: dict[str, Accepted] = {}
    rows = connection.execute(sql.IN_FLIGHT, (documents, list(own))).fetchall()
    for document, job_id, status, promised in rows:
        accepted = Accepted(job_id, JobStatus(status), job_id not in own, promised)
        if job_id in own:
            found[job_id] = accepted
        else:
            known[document] = accepted
    for job in refused:
        if job.job_id not in found and job.target.document_id in known:
            found[job.job_id] = known[job.target.document_id]
    return found


def _parameters(jobs: Sequence[NewJob], expected: Mapping[str, datetime | None]) -> dict[str, Any]:
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
        "expected": [expected[job.job_id] for job in jobs],
        "digests": [job.payload_digest for job in jobs],
        "corpus_key": target.corpus_key,
        "caller_id": target.caller_id,
        "corpus_name": target.corpus_name,
        "batch_id": jobs[0].batch_id,
        "tier": jobs[0].tier,
        "job_type": jobs[0].job_type,
        "replay_of": jobs[0].replay_of,
        "first": FIRST,
    }
