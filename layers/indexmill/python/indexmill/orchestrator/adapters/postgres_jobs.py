"""JobStore on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from psycopg.types.json import Jsonb

from indexmill.contracts.job import Job, JobError, JobStatus
from indexmill.contracts.messages import StageResult, Target
from indexmill.orchestrator.adapters import job_sql as sql
from indexmill.orchestrator.adapters.postgres_admission import admit, waiting_callers
from indexmill.orchestrator.adapters.postgres_forecast import Forecasts
from indexmill.orchestrator.adapters.postgres_submission import submit
from indexmill.orchestrator.changes import Ledger
from indexmill.orchestrator.pipeline import progress, user_message
from indexmill.orchestrator.ports import (
    Change,
    DeadLetter,
    Decide,
    JobEvent,
    JobFilter,
    JobNews,
    JobState,
    NewJob,
    OutboxRow,
    Submission,
)
from indexmill.orchestrator.quotas import Limits
from indexmill.platform.adapters.postgres import Connection, Database

_CALLERS_AT_ONCE = 50
"""Their locks are held for one transaction."""


class PostgresJobs:
    """Jobs, history, outbox and inbox in one database: state and intent are one commit."""

    def __init__(self, database: Database, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._limits = limits or Limits()
        self._forecasts = Forecasts.of(self._limits)

    def submit(self, jobs: Sequence[NewJob]) -> Submission:
        """Accept all jobs in one transaction, which may be run again: their ids were made beforehand."""
        return self._database.run(lambda connection: submit(connection, jobs, self._forecasts))

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None."""
        row = self._database.read(lambda c: c.execute(sql.GET, (job_id, caller_id)).fetchone())
        return self._told(caller_id, [_job(row)])[0] if row else None

    def events_after(self, caller_id: str, job_id: str, seq: int) -> JobNews | None:
        """Return the caller's job with its events after `seq`, read by one statement."""
        values = (seq, job_id, caller_id)
        row = self._database.read(lambda c: c.execute(sql.EVENTS_AFTER, values).fetchone())
        if row is None:
            return None
        *job, newest, events = row
        (told,) = self._told(caller_id, [_job(tuple(job))])
        return JobNews(told, newest, [_event(*event) for event in events])

    def find(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        at, job_id = wanted.before or (None, None)
        parameters = {
            "caller_id": wanted.caller_id,
            "corpus_name": wanted.corpus_name,
            "status": wanted.status,
            "failed_stage": wanted.failed_stage,
            "url": wanted.url,
            "created_after": wanted.created_after,
            "created_before": wanted.created_before,
            "before_at": at,
            "before_id": job_id,
            "limit": wanted.limit,
        }
        rows = self._database.read(lambda connection: connection.execute(sql.FIND, parameters).fetchall())
        return self._told(wanted.caller_id, [_job(row) for row in rows])

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job without a lock."""
        row = self._database.read(lambda connection: connection.execute(sql.STATE, (job_id,)).fetchone())
        return _state(row) if row else None

    def apply(self, results: Sequence[StageResult], decide: Decide) -> list[Change]:
        """Lock, decide and commit in one transaction."""
        job_ids = sorted({result.job_id for result in results if result.job_id})
        message_ids = [result.message_id for result in results]

        def work(connection: Connection) -> list[Change]:
            states = {row[0]: _state(row) for row in connection.execute(sql.LOCK, (job_ids,)).fetchall()}
            fresh = {row[0] for row in connection.execute(sql.RECEIVE, (message_ids,)).fetchall()}
            ledger = Ledger(states, fresh, decide)
            changes = [ledger.take(result) for result in results]
            # A result that is early must count when it comes back.
            if ledger.early:
                connection.execute(sql.FORGET, (ledger.early,))
            if ledger.moves:
                connection.execute(sql.APPLY, _apply_parameters(ledger))
            if ledger.notes:
                connection.execute(sql.NOTE, _note_parameters(ledger))
            ended = ledger.callers_with_room()
            if not ended:
                return changes
            return ledger.with_admitted(changes, admit(connection, self._limits, ended, ledger.done()))

        return self._database.run(work)

    def admit_all(self) -> list[OutboxRow]:
        """Let every pending job start that may, some callers at a time."""
        callers = self._database.read(waiting_callers)
        admitted: list[OutboxRow] = []
        for at in range(0, len(callers), _CALLERS_AT_ONCE):
            some = callers[at : at + _CALLERS_AT_ONCE]
            admitted += self._database.run(partial(admit, limits=self._limits, callers=some))
        return admitted

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that nobody else holds."""
        return self._rows(sql.CLAIM, limit)

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        self._database.read(lambda connection: connection.execute(sql.MARK_SENT, (list(ids),)))

    def mark_failed(self, ids: Sequence[str], error: str) -> None:
        """Give claimed messages back after a failed try."""
        self._database.read(lambda connection: connection.execute(sql.MARK_FAILED, (error, list(ids))))

    def rescue(self, limit: int) -> list[OutboxRow]:
        """Return the kept message of each stuck job."""
        return self._rows(sql.RESCUE, limit)

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled; NUL, which Postgres cannot store, becomes a space."""
        body = letter.body.replace("\0", " ")
        values = (letter.queue, letter.job_id, body, letter.receive_count, letter.reason)
        self._database.read(lambda connection: connection.execute(sql.DEAD_LETTER, values))

    def _told(self, caller_id: str, jobs: list[Job]) -> list[Job]:
        return self._database.read(lambda connection: self._forecasts.told(connection, caller_id, jobs))

    def _rows(self, statement: str, limit: int) -> list[OutboxRow]:
        rows = self._database.read(lambda connection: connection.execute(statement, (limit,)).fetchall())
        return [OutboxRow(*row) for row in rows]


def _job(row: tuple[Any, ...]) -> Job:
    status = JobStatus(row[1])
    error = JobError.model_validate(row[5]) if row[5] else None
    return Job(
        job_id=row[0],
        status=status,
        url=row[2],
        corpus_name=row[3],
        failed_stage=row[4],
        error=error,
        created_at=row[6],
        updated_at=row[7],
        user_message=user_message(status, error),
        progress=progress(status, row[4]),
        attempt=row[8],
        batch_id=row[9],
        document_id=row[10],
        chunk_count=row[11],
        title=row[12],
        attempts=row[13] or (error.attempts if error else None),
        next_retry_at=row[14],
        priority=row[15],
        job_type=row[16],
        replay_of=row[17],
        expected_by=row[18],
    )


def _event(seq: int, attempt: int, to_status: str, at: str, detail: Any) -> JobEvent:
    error = JobError.model_validate(detail) if detail and to_status == JobStatus.FAILED else None
    return JobEvent(seq, attempt, to_status, datetime.fromisoformat(at), error)


def _state(row: tuple[Any, ...]) -> JobState:
    job_id, status, attempt, caller_id, corpus, key, document, canonical, url, title, generation = row
    target = Target(
        caller_id=caller_id,
        corpus_name=corpus or "",
        corpus_key=key or "",
        document_id=document or "",
        url=canonical or url,
    )
    return JobState(job_id, JobStatus(status), attempt, target, generation, title)


def _apply_parameters(ledger: Ledger) -> dict[str, Any]:
    finals = list(ledger.finals.values())
    moves = ledger.moves
    rows = [row for move in moves for row in move.change.outbox]
    return {
        "job_ids": [final.job_id for final in finals],
        "statuses": [final.status.value for final in finals],
        "stages": [final.error.stage if final.error else None for final in finals],
        "errors": [_json(final.error) for final in finals],
        "titles": [final.title for final in finals],
        "counts": [final.chunk_count for final in finals],
        "h_jobs": [move.job_id for move in moves],
        "h_attempts": [move.attempt for move in moves],
        "h_from": [move.from_status.value for move in moves],
        "h_to": [move.to_status.value for move in moves],
        "h_causes": [move.cause for move in moves],
        "h_details": [_json(move.change.error) for move in moves],
        "h_tries": [move.result.tries for move in moves],
        "h_workers": [move.result.worker for move in moves],
        "h_elapsed": [move.result.elapsed_ms for move in moves],
        "o_ids": [row.id for row in rows],
        "o_jobs": [row.job_id for row in rows],
        "o_attempts": [row.attempt for row in rows],
        "o_stages": [row.stage for row in rows],
        "o_kinds": [row.kind for row in rows],
        "o_payloads": [row.payload for row in rows],
    }


def _note_parameters(ledger: Ledger) -> tuple[list[Any], ...]:
    notes = list(ledger.notes.items())
    return (
        [job_id for job_id, _ in notes],
        [note.tries for _, note in notes],
        [note.next_retry_at for _, note in notes],
        [note.cause for _, note in notes],
    )


def _json(error: JobError | None) -> Jsonb | None:
    return Jsonb(error.model_dump(mode="json", exclude_none=True)) if error else None
