"""JobStore on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from psycopg.types.json import Jsonb

from indexmill.contracts.job import Job
from indexmill.contracts.messages import StageResult
from indexmill.orchestrator.adapters import job_sql as sql
from indexmill.orchestrator.adapters import postgres_fence as fence
from indexmill.orchestrator.adapters.apply_parameters import apply_parameters, note_parameters
from indexmill.orchestrator.adapters.job_rows import as_event, as_job, as_state
from indexmill.orchestrator.adapters.postgres_admission import admit, waiting_callers
from indexmill.orchestrator.adapters.postgres_dependencies import settle
from indexmill.orchestrator.adapters.postgres_forecast import Forecasts
from indexmill.orchestrator.adapters.postgres_submission import submit
from indexmill.orchestrator.changes import Ledger
from indexmill.orchestrator.ports import (
    Change,
    DeadLetter,
    Decide,
    JobFilter,
    JobNews,
    JobState,
    NewJob,
    Once,
    OutboxRow,
    Submission,
)
from indexmill.orchestrator.quotas import Limits
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.postgres.stored_text import storable

_CALLERS_AT_ONCE = 50
"""Their locks are held for one transaction."""


class PostgresJobs:
    """Jobs, history, outbox and inbox in one database: state and intent are one commit."""

    def __init__(self, database: Database, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._limits = limits or Limits()
        self._forecasts = Forecasts.of(self._limits)

    def submit(self, jobs: Sequence[NewJob], once: Once | None = None) -> Submission:
        """Accept all jobs in one transaction, which may be run again: their ids were made beforehand."""
        return self._database.run(lambda connection: submit(connection, jobs, self._forecasts, once))

    def get(self, caller_id: str, job_id: str) -> Job | None:
        """Return the caller's job, or None."""
        row = self._database.read(lambda c: c.execute(sql.GET, (job_id, caller_id)).fetchone())
        return self._told(caller_id, [as_job(row)])[0] if row else None

    def events_after(self, caller_id: str, job_id: str, seq: int) -> JobNews | None:
        """Return the caller's job with its events after `seq`, read by one statement."""
        values = (seq, job_id, caller_id)
        row = self._database.read(lambda c: c.execute(sql.EVENTS_AFTER, values).fetchone())
        if row is None:
            return None
        *job, newest, events = row
        (told,) = self._told(caller_id, [as_job(tuple(job))])
        return JobNews(told, newest, [as_event(*event) for event in events])

    def find(self, wanted: JobFilter) -> list[Job]:
        """Return the jobs that match, newest first."""
        at, job_id = wanted.before or (None, None)
        parameters = {
            "caller_id": wanted.caller_id,
            "corpus_name": wanted.corpus_name,
            "status": wanted.status,
            "failed_stage": wanted.failed_stage,
            "url": wanted.url,
            "code": wanted.code,
            "batch_id": wanted.batch_id,
            "created_after": wanted.created_after,
            "created_before": wanted.created_before,
            "before_at": at,
            "before_id": job_id,
            "limit": wanted.limit,
        }
        rows = self._database.read(lambda connection: connection.execute(sql.FIND, parameters).fetchall())
        return self._told(wanted.caller_id, [as_job(row) for row in rows])

    def state(self, job_id: str) -> JobState | None:
        """Return any caller's job without a lock."""
        row = self._database.read(lambda connection: connection.execute(sql.STATE, (job_id,)).fetchone())
        return as_state(row) if row else None

    def apply(self, results: Sequence[StageResult], decide: Decide) -> list[Change]:
        """Lock, decide and commit in one transaction."""
        job_ids = sorted({result.job_id for result in results if result.job_id})
        message_ids = [result.message_id for result in results]

        def work(connection: Connection) -> list[Change]:
            states = {row[0]: as_state(row) for row in connection.execute(sql.LOCK, (job_ids,)).fetchall()}
            fresh = {row[0] for row in connection.execute(sql.RECEIVE, (message_ids,)).fetchall()}
            ledger = Ledger(fence.look(connection, states, results), fresh, decide)
            changes = [ledger.take(result) for result in results]
            self._write(connection, ledger)
            return ledger.with_more(changes, self._follow_up(connection, ledger))

        return self._database.run(work)

    def _write(self, connection: Connection, ledger: Ledger) -> None:
        # A result that is early must count when it comes back.
        if ledger.early:
            connection.execute(sql.FORGET, (ledger.early,))
        if ledger.moves:
            connection.execute(sql.APPLY, apply_parameters(ledger))
        if ledger.notes:
            connection.execute(sql.NOTE, note_parameters(ledger))

    def _follow_up(self, connection: Connection, ledger: Ledger) -> list[OutboxRow]:
        """Do what follows from the batch and return the messages of other jobs that go out now."""
        fence.close(connection, ledger.fences())
        awaited = [job_id for job_id in ledger.ended() if ledger.states[job_id].has_dependents]
        if awaited:
            settle(connection, awaited)
        rows = fence.send_again(connection, ledger)
        ended = ledger.callers_with_room()
        return rows + (admit(connection, self._limits, ended, ledger.done()) if ended else [])

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

    def take_over(self, ids: Sequence[str]) -> list[OutboxRow]:
        """Take these messages from whoever holds them."""
        return self._rows(sql.TAKE_OVER, list(ids))

    def left_behind(self, job_ids: Sequence[str]) -> list[OutboxRow]:
        """Take what was committed for these jobs some seconds ago and never tried to be sent."""
        return self._rows(sql.LEFT_BEHIND, list(job_ids))

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        self._database.read(lambda connection: connection.execute(sql.MARK_SENT, (list(ids),)))

    def mark_failed(self, ids: Sequence[str], error: str, *, away: bool = False) -> None:
        """Give claimed messages back after a failed try."""
        values = {"ids": list(ids), "error": error, "counted": 0 if away else 1}
        self._database.read(lambda connection: connection.execute(sql.MARK_FAILED, values))

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled, with what Postgres cannot store taken out."""
        values = {
            "queue": letter.queue,
            "body": storable(letter.body),
            "receive_count": letter.receive_count,
            "reason": letter.reason,
            "cause": letter.cause,
            "job_id": storable(letter.job_id),
            "stage": letter.stage,
            "attempt": letter.attempt,
            "message_id": storable(letter.message_id),
            "body_ref": Jsonb(letter.body_ref.model_dump()) if letter.body_ref else None,
            "attributes": Jsonb(dict(letter.attributes)) if letter.attributes is not None else None,
            "source_id": letter.source_id,
        }
        self._database.read(lambda connection: connection.execute(sql.DEAD_LETTER, values))

    def _told(self, caller_id: str, jobs: list[Job]) -> list[Job]:
        return self._database.read(lambda connection: self._forecasts.told(connection, caller_id, jobs))

    def _rows(self, statement: str, value: int | list[str]) -> list[OutboxRow]:
        rows = self._database.read(lambda connection: connection.execute(statement, (value,)).fetchall())
        return [OutboxRow(*row) for row in rows]
