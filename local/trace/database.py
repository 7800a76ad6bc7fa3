"""Database records of a job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

Row = dict[str, Any]

_CONNECT_S: Final = 5
_MOST_MATCHES: Final = 5
_JOBS: Final = (
    "SELECT id, caller_id, status, url, canonical_url, corpus_name, title, chunk_count, attempt, error, "
    "created_at, updated_at, tries, next_retry_at, retry_cause, blocked_by, now() AS read_at, "
    # One of an earlier stage stays in the row, and counts no more.
    "CASE WHEN retry_cause IS NOT NULL AND last_error->>'stage' = status THEN last_error END AS last_error, "
    "greatest(next_eligible_at, due_at) AS site_at, failing_until > now() AS site_failing "
    "FROM jobs LEFT JOIN sites USING (site) WHERE left(id, length(%(id)s)) = %(id)s "
    "ORDER BY created_at DESC LIMIT %(most)s"
)
_HISTORY: Final = (
    "SELECT attempt, from_status, to_status, at, cause, detail "
    "FROM job_history WHERE job_id = %s ORDER BY seq"
)
_MESSAGES: Final = (
    "SELECT id, attempt, stage, created_at, sent_at, tries, parked_at, last_error, "
    "octet_length(payload) AS size FROM outbox WHERE job_id = %s ORDER BY created_at, id"
)
_DEAD: Final = (
    "SELECT queue, receive_count, reason, received_at "
    "FROM dead_letters WHERE job_id = %s ORDER BY received_at"
)
_HOLDS: Final = (
    "SELECT 'paused' AS kind, stage AS subject, reason AS why, paused_at AS since FROM pauses "
    "UNION ALL SELECT kind, subject, NULL, opened_at FROM incidents "
    "WHERE kind = 'breaker_open' AND closed_at IS NULL ORDER BY since"
)


class JobUnknown(LookupError):
    """Raised when no job has this id, or several have the prefix; the text says which."""


@dataclass(frozen=True, slots=True)
class JobRecords:
    """Rows of one job, each kind in chronological order."""

    job: Row
    history: Sequence[Row]
    messages: Sequence[Row]
    dead_letters: Sequence[Row]
    read_at: datetime
    """Time of the database at the query."""
    holds: Sequence[Row] = ()
    """Pauses of stages and open breakers, of any stage: {kind, subject, why, since}."""


def load(database_url: str, job_id: str) -> JobRecords:
    """Load all records of the job with this id, or with an id that has this prefix.

    Raises JobUnknown, and psycopg.OperationalError when the database does not answer.
    """
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(database_url, connect_timeout=_CONNECT_S, row_factory=dict_row) as connection:
        found = connection.execute(_JOBS, {"id": job_id, "most": _MOST_MATCHES}).fetchall()
        if not found or not job_id:
            raise JobUnknown(f"there is no job {job_id}")
        if len(found) > 1:
            raise JobUnknown(f"several jobs begin with {job_id}: {', '.join(each['id'] for each in found)}")
        (job,) = found
        history, messages, dead = (
            connection.execute(query, [job["id"]]).fetchall() for query in (_HISTORY, _MESSAGES, _DEAD)
        )
        holds = connection.execute(_HOLDS).fetchall()
    return JobRecords(job, history, messages, dead, job.pop("read_at"), holds)
