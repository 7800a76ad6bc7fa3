"""Acts of an operator on callers and maintenance, for the command line and the Migrator's event.

Each is one function of the database (0021_callers.sql); the sweeper copies the result to the state table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import psycopg

_ACTS: Final = {
    "list": """
        SELECT caller_id, root, first_seen::text, linked_at::text, blocked_at::text, blocked_reason, mirrored
        FROM callers ORDER BY root, root <> caller_id, caller_id
    """,
    "link": "SELECT link_callers(%s, %s) AS linked",
    "block": "SELECT block_caller(%s, %s) AS blocked",
    "unblock": "SELECT unblock_caller(%s) AS unblocked",
    "maintenance": "SELECT set_maintenance(nullif(%s, ''))",
    "maintenance_is": "SELECT message, changed_at::text, mirrored FROM maintenance",
}


class ActError(Exception):
    """The act is unknown or refused; the text says why."""


def act(url: str, name: str, arguments: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Do one act as the owner of the database at `url` and return its rows. Raises ActError."""
    statement = _ACTS.get(name)
    if statement is None or statement.count("%s") != len(arguments):
        raise ActError(f"{name} with {len(arguments)} arguments is none of {', '.join(_ACTS)}")
    with psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row) as connection:
        try:
            return connection.execute(statement, list(arguments)).fetchall()
        except (psycopg.errors.RaiseException, psycopg.errors.LockNotAvailable) as error:
            raise ActError(error.diag.message_primary or str(error)) from error
