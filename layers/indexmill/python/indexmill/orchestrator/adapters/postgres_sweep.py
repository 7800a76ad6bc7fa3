"""SweepStore on Postgres."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from psycopg.types.json import Jsonb

from indexmill.contracts.job import JobStatus
from indexmill.orchestrator.accounting import agree
from indexmill.orchestrator.adapters import sweep_sql as sql
from indexmill.orchestrator.pipeline import STAGES
from indexmill.orchestrator.ports_sweep import PASSED_FOR, Count, Retention, Silent
from indexmill.platform.postgres.database import Connection, Database


class PostgresSweep:
    """The sweeper's statements, each safe beside another sweeper's."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database

    def now(self) -> datetime:
        """Return the database's time."""
        at: datetime = self._rows(sql.NOW)[0][0]
        return at

    def outside(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox."""
        stages = [stage.name for stage in STAGES]
        return dict(self._rows(sql.OUTSIDE, {"stages": stages, "before": before}))

    def confirm(self, counts: Mapping[str, Count]) -> Mapping[str, int]:
        """Keep the counts and return what they and those before agree on."""

        def work(connection: Connection) -> dict[str, int]:
            rows = connection.execute(sql.LAST_COUNTS, (sorted(counts),)).fetchall()
            last = {stage: Count(missing, at) for stage, missing, at in rows}
            found = agree(last, counts)
            new = [(stage, counts[stage]) for stage in sorted(found)]
            columns = (
                [stage for stage, _ in new],
                [each.missing for _, each in new],
                [each.at for _, each in new],
            )
            connection.execute(sql.KEEP_COUNTS, columns)
            return found

        return self._database.run(work)

    def silent(self, stage: str, limit: int, before: datetime, *, passed: bool) -> list[Silent]:
        """Return jobs of `stage` whose message is out: longest without an event first."""
        values = {"stages": [stage], "limit": limit, "before": before, "passed": passed}
        return [Silent(*row) for row in self._rows(sql.SILENT, values)]

    def passed(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were passed by others."""
        stages = [stage.name for stage in STAGES]
        if not self._any_silent(stages, PASSED_FOR):
            return {}
        values = {
            "stages": stages,
            "any_status": [status.value for status in JobStatus],
            "before": before,
            "silence": PASSED_FOR,
        }
        return dict(self._rows(sql.PASSED, values))

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[Silent]:
        """Return jobs without an event for 30 minutes, less those that wait for a known reason."""
        stages = [*empty, *busy]
        if not self._any_silent(stages, sql.STUCK_AFTER):
            return []
        values = {"stages": stages, "empty": list(empty), "limit": limit}
        return [Silent(*row) for row in self._rows(sql.STUCK, values)]

    def send_again(self, jobs: Sequence[Silent]) -> int:
        """Hand kept messages to the relay, unless something happened to their job meanwhile."""
        columns = (
            [job.job_id for job in jobs],
            [job.message_id for job in jobs],
            [job.updated_at for job in jobs],
        )
        return len(self._rows(sql.SEND_AGAIN, columns))

    def parked(self) -> int:
        """Return how many messages were set aside that their jobs still wait for."""
        return int(self._rows(sql.PARKED)[0][0])

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete a batch of each kind of rows that are no longer needed."""
        values = {
            "payloads": keep.payloads,
            "inbox": keep.inbox,
            "keys": keep.idempotency_keys,
            "letters": keep.dead_letters,
            "limit": limit,
        }

        def delete(connection: Connection) -> dict[str, int]:
            old: dict[str, bool] = dict(connection.execute(sql.OLD, values).fetchall())
            return {
                kind: connection.execute(text, values).rowcount if old[kind] else 0
                for kind, text in sql.PURGE.items()
            }

        return self._database.read(delete)

    def pauses(self) -> Mapping[str, str]:
        """Return why an operator holds back a stage, by stage."""
        return dict(self._rows(sql.PAUSES))

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` the open incidents of `kind`; return what opened and closed."""
        known = {row[0] for row in self._rows(sql.KNOWN_INCIDENTS, (kind,))}
        new = {subject: Jsonb(dict(detail)) for subject, detail in current.items() if subject not in known}
        opened = self._rows(sql.OPEN_INCIDENTS, (kind, list(new), list(new.values()))) if new else []
        over = known - set(current)
        closed = self._rows(sql.CLOSE_INCIDENTS, (kind, list(current))) if over else []
        return [row[0] for row in opened], [row[0] for row in closed]

    def _any_silent(self, stages: list[str], silence: timedelta) -> bool:
        """Say whether a closer look is worth its time: hardly ever."""
        return bool(self._rows(sql.ANY_SILENT, (stages, silence))[0][0])

    def _rows(self, statement: str, values: Any = None) -> list[tuple[Any, ...]]:
        return self._database.read(lambda connection: connection.execute(statement, values).fetchall())
