"""Conditions of a stack: maintenance, pauses, breakers, incidents and dead letters, from their tables."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

_CONNECT_S: Final = 5
_ANSWER_S: Final = 2
BREAKERS: Final = ("embedding", "embedding_query", "index")
_STATEMENTS: Final = {
    "maintenance": "SELECT message, changed_at, mirrored FROM maintenance WHERE message IS NOT NULL",
    "pauses": "SELECT stage, reason, paused_by, paused_at FROM pauses ORDER BY stage",
    "incidents": "SELECT kind, subject, opened_at FROM incidents WHERE closed_at IS NULL ORDER BY opened_at",
    "dead_letters": """
        SELECT queue, cause, count(*)::int AS count, max(received_at) AS last FROM dead_letters
        GROUP BY queue, cause ORDER BY queue, cause
    """,
}


Rows = Sequence[Mapping[str, Any]]


def read(info: Mapping[str, Any]) -> dict[str, Rows | None]:
    """Return the rows of each table; None for `breakers` when the state table does not answer.

    Raises psycopg.Error.
    """
    return {**of_database(info["database_url"]), "breakers": _breakers(info)}


def of_database(url: str) -> dict[str, Rows]:
    """Return the rows of the database's tables. Raises psycopg.Error."""
    import psycopg
    from psycopg.rows import dict_row

    with psycopg.connect(
        url, autocommit=True, connect_timeout=_CONNECT_S, row_factory=dict_row
    ) as connection:
        return {name: connection.execute(text).fetchall() for name, text in _STATEMENTS.items()}


def _breakers(info: Mapping[str, Any]) -> Rows | None:
    """Return the breakers that are not closed, as their items are now."""
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    times = Config(connect_timeout=_ANSWER_S, read_timeout=_ANSWER_S, retries={"total_max_attempts": 1})
    keys = {"region_name": info["region"], "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    make: Any = boto3.client
    table, now = info["resources"]["StateTable"], time.time()
    asked = {table: {"Keys": [{"pk": {"S": f"breaker#{name}"}} for name in BREAKERS]}}
    try:
        client = make("dynamodb", endpoint_url=info["aws_endpoint"], config=times, **keys)
        items = client.batch_get_item(RequestItems=asked)["Responses"].get(table, ())
    except (BotoCoreError, ClientError):
        return None
    rows = [_breaker(item, now) for item in items if float(item["expires_at"]["N"]) > now]
    return sorted((row for row in rows if row["opened_at"]), key=lambda row: row["name"])


def _breaker(item: Mapping[str, Any], now: float) -> dict[str, Any]:
    opened_at, open_until = float(item["opened_at"]["N"]), float(item["open_until"]["N"])
    reason = item.get("refusal", {}).get("S") or f"{item['failures']['N']} failures in a row"
    return {
        "name": item["pk"]["S"].removeprefix("breaker#"),
        "phase": "open" if now < open_until else "half_open",
        "opened_at": datetime.fromtimestamp(opened_at, UTC) if opened_at else None,
        "open_until": datetime.fromtimestamp(open_until, UTC) if opened_at else None,
        "reason": reason,
    }


def lines(found: Mapping[str, Rows | None]) -> Iterator[str]:
    """Return a line for each condition; nothing where there is none."""
    for row in found["maintenance"] or ():
        since = "" if row["mirrored"] else ", and is not known to requests yet"
        yield f"maintenance since {_at(row['changed_at'])}{since}: {row['message']}"
    for row in found["pauses"] or ():
        stage = "every stage" if row["stage"] == "*" else row["stage"]
        yield f"{stage} paused since {_at(row['paused_at'])} by {row['paused_by']}: {row['reason']}"
    breakers = found["breakers"]
    if breakers is None:
        yield "the state table does not answer"
    for row in breakers or ():
        until = f"open until {_at(row['open_until'])}" if row["phase"] == "open" else "waits for a probe"
        yield f"breaker {row['name']} {until}, not closed since {_at(row['opened_at'])}: {row['reason']}"
    for row in found["incidents"] or ():
        if row["kind"] == "breaker_open" and breakers is None:
            yield f"breaker {row['subject']} open since {_at(row['opened_at'])}"
        elif row["kind"] == "other_model":
            effect = "found by keywords alone until they are replayed"
            yield f"documents of model {row['subject']} since {_at(row['opened_at'])}: {effect}"
        elif row["kind"] not in ("breaker_open", "paused"):
            yield f"incident {row['kind']} of {row['subject']} since {_at(row['opened_at'])}"
    for row in found["dead_letters"] or ():
        yield f"{row['count']} dead letters of {row['queue']}: {row['cause']}, the last at {_at(row['last'])}"


def _at(moment: Any) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
