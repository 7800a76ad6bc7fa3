"""Names of the calls at which a fault can be injected, derived from the calls themselves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

_READS: Final = ("Get", "List", "Head", "Describe", "Query", "Scan", "Receive", "BatchGet")
_WRITES: Final = re.compile(
    r"(?<!FOR )(?<!KEY )(?<!DO )\b(INSERT INTO|UPDATE|DELETE FROM|COPY)\s+(?:ONLY\s+)?([a-z_][a-z_0-9]*)",
    re.IGNORECASE,
)
_HTTP: Final = {"embeddings": "embeddings", "auth": "auth", "robots.txt": "robots"}
_STACK: Final = "indexmill-"


def aws_call(service: str, operation: str, parameters: Mapping[str, Any]) -> tuple[str, bool]:
    """Return an AWS call's name without its function, and whether it changes something."""
    target = ""
    if url := parameters.get("QueueUrl"):
        target = str(url).rpartition("/")[2].removeprefix(_STACK)
    elif key := parameters.get("Key") if isinstance(parameters.get("Key"), str) else None:
        target = str(key).partition("/")[0]
    elif name := parameters.get("FunctionName"):
        target = str(name).rpartition(":")[2].removeprefix(_STACK)
    elif parameters.get("TableName"):
        target = _item(parameters)
    call = f"{service}.{operation}"
    return (f"{call}@{target}" if target else call), not operation.startswith(_READS)


def _item(parameters: Mapping[str, Any]) -> str:
    """Return the first part of an item's key: its kind."""
    key = parameters.get("Item") or parameters.get("Key") or {}
    return str(key.get("pk", {}).get("S", "")).partition("#")[0]


def sql_call(statement: str | bytes) -> tuple[str, bool]:
    """Return a statement's name without its function, and whether it changes something.

    >>> sql_call("WITH a AS (UPDATE jobs SET x = 1) INSERT INTO outbox SELECT 1")
    ('postgres.execute@update-jobs,insert-outbox', True)
    """
    text = statement.decode("utf-8", "replace") if isinstance(statement, bytes) else statement
    parts: list[str] = []
    before = ""
    for verb, table in _WRITES.findall(text):
        short = verb.split()[0].lower()
        if short == before:
            parts[-1] += f"-{table.lower()}"
        else:
            parts.append(f"{short}-{table.lower()}")
        before = short
    if not parts:
        return "postgres.execute@read", False
    return f"postgres.execute@{','.join(parts)}", True


def http_call(method: str, url: str) -> tuple[str, bool]:
    """Return an HTTP call's name without its function; each counts as a change, because it has a cost."""
    target = _HTTP.get(urlsplit(url).path.rpartition("/")[2], "page")
    return f"http.{method.lower()}@{target}", True
