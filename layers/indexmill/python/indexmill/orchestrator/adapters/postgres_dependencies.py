"""Jobs that wait for other jobs: within the transaction that submits, ends or retries one of them."""

from __future__ import annotations

from collections.abc import Sequence

from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.adapters import dependency_sql as sql
from indexmill.orchestrator.dependencies import circle, failed_dependency, unknown_dependency
from indexmill.orchestrator.pipeline import FIRST
from indexmill.platform.postgres.database import Connection


def connect(connection: Connection, caller_id: str, job_ids: Sequence[str], wanted: Sequence[str]) -> None:
    """Let the new jobs wait for those of `wanted` that are not done; fail them when one has failed.

    Raises CallerError(validation_error) for a job that is unknown or somebody else's, and for a circle.
    """
    known: dict[str, str] = dict(connection.execute(sql.KNOWN, (list(wanted), caller_id)).fetchall())
    for position, job_id in enumerate(wanted):
        if job_id not in known:
            raise unknown_dependency(position)
    connection.execute(sql.CONNECT, (list(job_ids), list(wanted)))
    row = connection.execute(sql.CIRCLE, {"jobs": list(job_ids)}).fetchone()
    if row and row[0]:
        raise circle()
    if any(status != JobStatus.DONE for status in known.values()):
        connection.execute(sql.BLOCK, (list(job_ids),))
    if JobStatus.FAILED in known.values():
        _fail(connection, job_ids)


def settle(connection: Connection, ended: Sequence[str]) -> None:
    """Let go whoever waited for these jobs, which have ended: to start, or to fail with them."""
    waiting = [row[0] for row in connection.execute(sql.LOCK_WAITING, (list(ended),)).fetchall()]
    if not waiting:
        return
    _fail(connection, waiting)
    connection.execute(sql.RELEASE, (waiting,))


def still_waits(connection: Connection, job_id: str) -> bool:
    """Say whether a job that is retried waits for others.

    Raises CallerError(invalid_transition) when one of them has failed.
    """
    unmet: dict[str, str] = dict(connection.execute(sql.UNMET, (job_id,)).fetchall())
    for other, status in unmet.items():
        if status == JobStatus.FAILED:
            raise failed_dependency(other)
    return bool(unmet)


def _fail(connection: Connection, waiting: Sequence[str]) -> None:
    connection.execute(sql.FAIL_WAITING, {"waiting": list(waiting), "first": FIRST})
