"""JobVerbs on Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, LiteralString

import psycopg
from psycopg.types.json import Jsonb

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import Stored
from indexmill.orchestrator import verb_rules as rules
from indexmill.orchestrator.adapters import job_sql, verb_sql
from indexmill.orchestrator.adapters import postgres_fence as fence
from indexmill.orchestrator.adapters.job_rows import as_job, as_state
from indexmill.orchestrator.adapters.postgres_admission import admit
from indexmill.orchestrator.adapters.postgres_dependencies import settle, still_waits
from indexmill.orchestrator.adapters.postgres_forecast import Forecasts
from indexmill.orchestrator.ports import JobState, OutboxRow
from indexmill.orchestrator.quotas import Limits
from indexmill.orchestrator.resend import Renewal, renewed, stage_to_resume
from indexmill.orchestrator.verb_ports import BatchLine, Original, Outcome
from indexmill.platform.postgres.database import Connection, Database

_STATE_WIDTH = 13
"""Columns of a state, before those that only the verbs look at."""


@dataclass(frozen=True, slots=True)
class _Locked:
    """A caller's own job, locked."""

    state: JobState
    failed_stage: str | None
    error: JobError | None
    resume_stage: str | None
    forced: bool
    ended_at: datetime | None


class PostgresVerbs:
    """What callers do with their own jobs, over the tables of `PostgresJobs`."""

    def __init__(self, database: Database, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._forecasts = Forecasts.of(limits or Limits())

    def cancel(self, caller_id: str, job_id: str, reason: str, at: datetime) -> Outcome:
        """Fail the job with code `canceled`, close its document to what it may still publish."""

        def work(connection: Connection) -> Outcome:
            locked = _lock(connection, caller_id, job_id)
            state = locked.state
            if rules.same_cancel(state.status, locked.error, reason, at):
                return Outcome(_read(connection, state), [])
            if not state.status.terminal:
                state = fence.seen(connection, [state]).get(job_id, state)
            rules.check_cancel(state)
            error = rules.canceled(state, locked.resume_stage, reason, at)
            values = {
                "stage": error.stage,
                "error": _json(error),
                "job_id": job_id,
                "from": state.status.value,
            }
            connection.execute(verb_sql.CANCEL, values)
            if state.issued is not None:
                fence.close(connection, {state.target.document_id: state.issued})
            if state.has_dependents:
                settle(connection, [job_id])
            return self._outcome(connection, state)

        return self._database.run(work)

    def retry(self, caller_id: str, job_id: str, message_id: str) -> Outcome:
        """Make the failed job pending again, with its stage's kept message."""

        def work(connection: Connection) -> Outcome:
            locked = _lock(connection, caller_id, job_id)
            state = locked.state
            if _yes(connection, verb_sql.OWN_MESSAGE, message_id, job_id):
                return Outcome(_read(connection, state), [])
            rules.check_retry(state.status)
            waits = still_waits(connection, job_id)
            if not locked.forced:
                _check_alone(connection, state)
            row = _renewed(connection, locked, message_id)
            if state.issued is not None:
                fence.close(connection, {state.target.document_id: state.issued})
            _write_retry(connection, row, state.generation, waits=waits)
            return self._outcome(connection, state)

        try:
            return self._database.run(work)
        except psycopg.errors.UniqueViolation:
            # Another job of the document came in between our look and our write; this look sees it.
            return self._database.run(work)

    def original(self, caller_id: str, job_id: str) -> Original | None:
        """Return the job with what doing it again takes."""

        def work(connection: Connection) -> Original | None:
            row = connection.execute(verb_sql.ORIGINAL, (job_id, caller_id)).fetchone()
            if row is None:
                return None
            raw_ref, facts, digest = row[-3:]
            state = as_state((*row[:-3], 0))
            stored = Stored.model_validate(raw_ref) if raw_ref else None
            return Original(_read(connection, state), state.target, stored, facts or {}, digest)

        return self._database.read(work)

    def batch(self, caller_id: str, batch_id: str) -> list[BatchLine]:
        """Return how many of the batch's jobs stand where."""
        rows = self._database.read(lambda c: c.execute(verb_sql.BATCH, (batch_id, caller_id)).fetchall())
        return [BatchLine(JobStatus(status), code, count) for status, code, count in rows]

    def _outcome(self, connection: Connection, state: JobState) -> Outcome:
        caller_id = state.target.caller_id
        rows = admit(connection, self._forecasts.limits, [caller_id])
        (job,) = self._forecasts.told(connection, caller_id, [_read(connection, state)])
        return Outcome(job, rows)


def _lock(connection: Connection, caller_id: str, job_id: str) -> _Locked:
    row = connection.execute(verb_sql.LOCK_OWN, (job_id, caller_id)).fetchone()
    if row is None:
        raise rules.unknown_job()
    failed_stage, error, *rest = row[_STATE_WIDTH:]
    return _Locked(
        as_state(row[:_STATE_WIDTH]), failed_stage, JobError.model_validate(error) if error else None, *rest
    )


def _read(connection: Connection, state: JobState) -> Job:
    row = connection.execute(job_sql.GET, (state.job_id, state.target.caller_id)).fetchone()
    if row is None:
        raise rules.unknown_job()
    return as_job(row)


def _check_alone(connection: Connection, state: JobState) -> None:
    other = connection.execute(verb_sql.OTHER_AT_WORK, (state.target.document_id,)).fetchone()
    if other is not None:
        raise rules.at_work(other[0])


def _renewed(connection: Connection, locked: _Locked, message_id: str) -> OutboxRow:
    state = locked.state
    kept: dict[str, str] = dict(connection.execute(job_sql.KEPT, (state.job_id,)).fetchall())
    outdated = _yes(connection, verb_sql.PUBLISHED_SINCE, state.target.document_id, locked.ended_at)
    stage = stage_to_resume(locked.failed_stage or "", kept, locked.error, outdated=outdated)
    renewal = Renewal(message_id, state.attempt + 1, state.generation)
    return renewed(state, stage, kept.get(stage), renewal)


def _write_retry(connection: Connection, row: OutboxRow, generation: int, *, waits: bool) -> None:
    columns = ("id", "job_id", "attempt", "stage", "kind", "payload")
    values: dict[str, Any] = {name: getattr(row, name) for name in columns}
    values["generation"] = generation if row.stage == "embedding" else None
    values["blocked_by"] = "dependency" if waits else None
    connection.execute(verb_sql.RETRY, values)


def _yes(connection: Connection, statement: LiteralString, *values: Any) -> bool:
    row = connection.execute(statement, values).fetchone()
    return bool(row and row[0])


def _json(error: JobError) -> Jsonb:
    return Jsonb(error.model_dump(mode="json", exclude_none=True))
