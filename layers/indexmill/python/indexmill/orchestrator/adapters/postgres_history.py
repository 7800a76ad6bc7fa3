"""HistoryStore on Postgres: the chain is checked where it is kept."""

from __future__ import annotations

from typing import Any, Final

from psycopg.rows import dict_row

from indexmill.contracts.http_history import HistoryEntry, JobHistory
from indexmill.platform.postgres.database import Connection, Database

_HISTORY: Final = """
SELECT h.attempt, h.from_status, h.to_status, h.at, h.cause, h.detail AS error, h.tries, h.worker,
    h.elapsed_ms,
    (extract(epoch FROM h.at - lag(h.at) OVER chain) * 1000)::bigint AS waited_ms,
    h.job_type, h.payload_digest, h.prev_hash, h.hash, jobs.status,
    h.prev_hash = lag(h.hash, 1, '') OVER chain AND h.hash = job_history_hash(h) AS sound
FROM job_history AS h JOIN jobs ON jobs.id = h.job_id
WHERE h.job_id = %s AND jobs.caller_id = %s
WINDOW chain AS (ORDER BY h.seq) ORDER BY h.seq
"""


class PostgresHistory:
    """Reads `job_history`."""

    def __init__(self, database: Database) -> None:
        """Nothing is opened yet."""
        self._database = database

    def history(self, caller_id: str, job_id: str) -> JobHistory | None:
        """Return the history of the caller's job, or None."""

        def read(connection: Connection) -> list[dict[str, Any]]:
            return connection.cursor(row_factory=dict_row).execute(_HISTORY, (job_id, caller_id)).fetchall()

        rows = self._database.read(read)
        if not rows:
            return None
        return JobHistory(
            job_id=job_id,
            entries=[HistoryEntry.model_validate(row) for row in rows],
            intact=all(row["sound"] for row in rows) and rows[-1]["to_status"] == rows[-1]["status"],
        )
