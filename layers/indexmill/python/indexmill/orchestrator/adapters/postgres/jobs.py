"""JobStore on Postgres: state, history and messages are in one database, and so in one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from psycopg.errors import UniqueViolation
from psycopg.types.json import Jsonb

from indexmill.orchestrator.adapters.postgres.reads import SQL, PaceCache
from indexmill.orchestrator.adapters.postgres.transaction import PostgresTx
from indexmill.orchestrator.admission.quotas import Limits
from indexmill.orchestrator.job_store import JobsTx, T
from indexmill.orchestrator.ports import DeadLetter, OutboxRow
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.postgres.stored_text import storable


class PostgresJobs:
    """Transactions of the use cases, and the relay's view of the outbox."""

    def __init__(self, database: Database, limits: Limits | None = None) -> None:
        """Nothing is opened yet."""
        self._database = database
        self._limits = limits or Limits()
        self._pace = PaceCache()

    def transaction(self, work: Callable[[JobsTx], T]) -> T:
        """Run `work` in one transaction, and once more when a unique index refused it.

        Then another transaction committed a row between the read and the write; the second read sees it.
        """
        try:
            return self._database.run(lambda connection: work(self._tx(connection)))
        except UniqueViolation:
            return self._database.run(lambda connection: work(self._tx(connection)))

    def read(self, work: Callable[[JobsTx], T]) -> T:
        """Run reads, each a transaction of its own."""
        return self._database.read(lambda connection: work(self._tx(connection)))

    def claim(self, limit: int) -> list[OutboxRow]:
        """Take unsent messages that no process has claimed."""
        return self._database.read(lambda connection: self._tx(connection).messages("claim", limit=limit))

    def mark_sent(self, ids: Sequence[str]) -> None:
        """Note that these messages are out."""
        self._do("mark_sent", ids=list(ids))

    def mark_failed(self, ids: Sequence[str], error: str, *, away: bool = False) -> None:
        """Give claimed messages back after a failed try."""
        self._do("mark_failed", ids=list(ids), error=error, counted=0 if away else 1)

    def record_dead_letter(self, letter: DeadLetter) -> None:
        """Keep a message that could not be handled, without characters that Postgres cannot store."""
        self._do(
            "record_dead_letter",
            queue=letter.queue,
            body=storable(letter.body),
            receive_count=letter.receive_count,
            reason=letter.reason,
            cause=letter.cause,
            job_id=storable(letter.job_id),
            stage=letter.stage,
            attempt=letter.attempt,
            message_id=storable(letter.message_id),
            body_ref=Jsonb(letter.body_ref.model_dump()) if letter.body_ref else None,
            attributes=Jsonb(dict(letter.attributes)) if letter.attributes is not None else None,
            source_id=letter.source_id,
        )

    def _do(self, name: str, **values: object) -> None:
        self._database.read(lambda connection: connection.execute(SQL[name], values))

    def _tx(self, connection: Connection) -> PostgresTx:
        return PostgresTx(connection, self._limits, self._pace)
