"""SweepStore on Postgres."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from indexmill.contracts.job import JobStatus
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.adapters.postgres.reads import SQL
from indexmill.orchestrator.sweeper.ports import (
    INTERRUPTED_FOR,
    OVERTAKEN_AFTER,
    CallerRow,
    KeptEvent,
    Maintenance,
    Retention,
    StaleJob,
)
from indexmill.platform.postgres.database import Connection, Database

_STUCK_AFTER: Final = timedelta(minutes=30)


class PostgresSweep:
    """The sweeper's statements, each safe beside another sweeper's."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database

    def now(self) -> datetime:
        """Return the database's time."""
        at: datetime = self._rows("now")[0]["at"]
        return at

    def count_unaccounted(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs have no message in the outbox."""
        return self._counts("count_unaccounted", stages=[stage.name for stage in STAGES], before=before)

    def find_stale(self, stage: str, limit: int, before: datetime, *, overtaken: bool) -> list[StaleJob]:
        """Return jobs of `stage` whose message was sent: longest without an event first."""
        return self._stale("find_stale", stages=[stage], limit=limit, before=before, overtaken=overtaken)

    def count_overtaken(self, before: datetime) -> Mapping[str, int]:
        """Return, by stage, how many of its jobs were overtaken."""
        stages = [stage.name for stage in STAGES]
        if not self._any_stale(stages, OVERTAKEN_AFTER):
            return {}
        any_status = [status.value for status in JobStatus]
        return self._counts(
            "count_overtaken", stages=stages, any_status=any_status, before=before, silence=OVERTAKEN_AFTER
        )

    def stuck(self, empty: Sequence[str], busy: Sequence[str], limit: int) -> list[StaleJob]:
        """Return jobs without an event for 30 minutes, less those that wait for a known reason."""
        stages = [*empty, *busy]
        if not self._any_stale(stages, _STUCK_AFTER):
            return []
        return self._stale("stuck", stages=stages, empty=list(empty), limit=limit)

    def send_again(self, jobs: Sequence[StaleJob]) -> int:
        """Hand kept messages to the relay, unless something happened to their job meanwhile."""
        sent = self._rows(
            "send_again",
            job_ids=[job.job_id for job in jobs],
            message_ids=[job.message_id for job in jobs],
            updated_at=[job.updated_at for job in jobs],
        )
        return len(sent)

    def parked(self) -> int:
        """Return how many messages were set aside that their jobs still wait for."""
        return int(self._rows("count_parked")[0]["count"])

    def log_audit(self, write: Callable[[KeptEvent], None], limit: int) -> int:
        """Pass on audit events in the order of their transactions, unless another sweeper does just now."""

        def work(connection: Connection) -> int:
            cursor = connection.cursor(row_factory=dict_row)
            last = cursor.execute(SQL["last_audit_logged"]).fetchone()
            if last is None:
                return 0
            rows = cursor.execute(SQL["audit_to_log"], {**last, "limit": limit}).fetchall()
            ends = [row.pop("xact") for row in rows]
            for row in rows:
                write(KeptEvent(**row))
            if rows:
                cursor.execute(SQL["keep_audit_logged"], {"xact": ends[-1], "seq": rows[-1]["seq"]})
            return len(rows)

        return self._database.run(work)

    def index_builds_due(self) -> int:
        """Return how many indexes of vectors are to be built, but those that were tried in the last hour."""
        return int(self._rows("index_builds_due")[0]["count"])

    def other_models(self, model: str, dimension: int) -> Mapping[str, Mapping[str, int]]:
        """Return how many documents, of how many corpora, have vectors of each other model, by its name."""
        rows = self._rows("other_models", model=model, dimension=dimension)
        return {
            f"{row['model']} ({row['dimension']})": {"documents": row["documents"], "corpora": row["corpora"]}
            for row in rows
        }

    def purge(self, keep: Retention, limit: int) -> Mapping[str, int]:
        """Delete a batch of each kind of rows that are no longer needed; a kind without any costs a look."""
        values = {
            "payloads": keep.payloads,
            "inbox": keep.inbox,
            "keys": keep.idempotency_keys,
            "letters": keep.dead_letters,
            "starts": keep.earlier_starts,
            "links": keep.links,
            "limit": limit,
        }

        def delete(connection: Connection) -> dict[str, int]:
            cursor = connection.cursor(row_factory=dict_row)
            old = {
                row["kind"]: row["found"] for row in cursor.execute(SQL["has_old_rows"], values).fetchall()
            }
            return {
                kind: connection.execute(SQL[f"purge_{kind}"], values).rowcount if found else 0
                for kind, found in old.items()
            }

        return self._database.read(delete)

    def unmirrored(self, limit: int) -> list[CallerRow]:
        """Return callers that are not copied as they are now."""
        return [CallerRow(**row) for row in self._rows("unmirrored", limit=limit)]

    def unmirrored_maintenance(self) -> Maintenance | None:
        """Return it when it is not copied as it is now."""
        rows = self._rows("unmirrored_maintenance")
        return Maintenance(**rows[0]) if rows else None

    def mark_mirrored(self, callers: Sequence[CallerRow]) -> None:
        """Record that these versions are copied."""
        ids, versions = [each.caller_id for each in callers], [each.version for each in callers]
        self._do("mark_mirrored", ids=ids, versions=versions)

    def mark_maintenance_mirrored(self, version: int) -> None:
        """Record that this version is copied."""
        self._do("mark_maintenance_mirrored", version=version)

    def mirror_all(self) -> None:
        """Record that nothing is copied."""
        self._do("mirror_all")

    def pauses(self) -> Mapping[str, str]:
        """Return why an operator holds back a stage, by stage."""
        return {row["stage"]: row["reason"] for row in self._rows("pauses")}

    def interruptions(self) -> Sequence[tuple[str, str]]:
        """Return kind and subject of pauses and of breakers that were not closed within INTERRUPTED_FOR."""
        rows = self._rows("interruptions", since=INTERRUPTED_FOR)
        return [(row["kind"], row["subject"]) for row in rows]

    def incidents(
        self, kind: str, current: Mapping[str, Mapping[str, object]]
    ) -> tuple[list[str], list[str]]:
        """Make `current` the open incidents of `kind`; return what opened and closed."""
        known = {row["subject"] for row in self._rows("open_incidents", kind=kind)}
        new = {subject: Jsonb(dict(detail)) for subject, detail in current.items() if subject not in known}
        opened, closed = [], []
        if new:
            opened = self._rows("insert_incidents", kind=kind, subjects=list(new), details=list(new.values()))
        if known - set(current):
            closed = self._rows("close_incidents", kind=kind, subjects=list(current))
        return [row["subject"] for row in opened], [row["subject"] for row in closed]

    def _any_stale(self, stages: list[str], silence: timedelta) -> bool:
        """Return whether any job is stale; the costlier statements run only then."""
        return bool(self._rows("any_stale", stages=stages, silence=silence)[0]["found"])

    def _counts(self, name: str, **values: Any) -> dict[str, int]:
        return {row["stage"]: row["count"] for row in self._rows(name, **values)}

    def _stale(self, name: str, **values: Any) -> list[StaleJob]:
        def read(connection: Connection) -> list[StaleJob]:
            return connection.cursor(row_factory=class_row(StaleJob)).execute(SQL[name], values).fetchall()

        return self._database.read(read)

    def _do(self, name: str, **values: Any) -> None:
        self._database.read(lambda connection: connection.execute(SQL[name], values))

    def _rows(self, name: str, **values: Any) -> list[dict[str, Any]]:
        def read(connection: Connection) -> list[dict[str, Any]]:
            return connection.cursor(row_factory=dict_row).execute(SQL[name], values).fetchall()

        return self._database.read(read)
