"""Conditions of a stack: maintenance, pauses, incidents and dead letters, from their tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

_CONNECT_S: Final = 5
_STATEMENTS: Final = {
    "maintenance": "SELECT message, changed_at, mirrored FROM maintenance WHERE message IS NOT NULL",
    "pauses": "SELECT stage, reason, paused_by, paused_at FROM pauses ORDER BY stage",
    "incidents": "SELECT kind, subject, opened_at FROM incidents WHERE closed_at IS NULL ORDER BY opened_at",
    "dead_letters": """
        SELECT queue, cause, count(*)::int AS count, max(received_at) AS last FROM dead_letters
        GROUP BY queue, cause ORDER BY queue, cause
    """,
}


def read(database_url: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each table. Raises psycopg.Error."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(
        database_url, autocommit=True, connect_timeout=_CONNECT_S, row_factory=dict_row
    ) as connection:
        return {name: connection.execute(text).fetchall() for name, text in _STATEMENTS.items()}


def lines(found: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Return a line for each condition; nothing where there is none."""
    for row in found["maintenance"]:
        since = "" if row["mirrored"] else ", and is not known to requests yet"
        yield f"maintenance since {_at(row['changed_at'])}{since}: {row['message']}"
    for row in found["pauses"]:
        stage = "every stage" if row["stage"] == "*" else row["stage"]
        yield f"{stage} paused since {_at(row['paused_at'])} by {row['paused_by']}: {row['reason']}"
    for row in found["incidents"]:
        if row["kind"] == "breaker_open":
            yield f"breaker {row['subject']} open since {_at(row['opened_at'])}"
        elif row["kind"] == "other_model":
            effect = "found by keywords alone until they are replayed"
            yield f"documents of model {row['subject']} since {_at(row['opened_at'])}: {effect}"
        elif row["kind"] != "paused":
            yield f"incident {row['kind']} of {row['subject']} since {_at(row['opened_at'])}"
    for row in found["dead_letters"]:
        yield f"{row['count']} dead letters of {row['queue']}: {row['cause']}, the last at {_at(row['last'])}"


def _at(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
