"""Ids of jobs and batches by their beginning, as every command prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID

from local.cli.terminal import EXIT_USAGE, Failure, running_stack

if TYPE_CHECKING:
    import psycopg

_CONNECT_S: Final = 5
_MOST_SHOWN: Final = 5
_QUERIES: Final = {
    "job": "SELECT id FROM jobs WHERE starts_with(id, %s) ORDER BY created_at DESC LIMIT %s",
    "batch": (
        "SELECT batch_id FROM jobs WHERE starts_with(batch_id, %s) "
        "GROUP BY batch_id ORDER BY max(created_at) DESC LIMIT %s"
    ),
}


def whole_ids(state: Path, given: Sequence[str], kind: Literal["job", "batch"] = "job") -> list[str]:
    """Return the whole ids of jobs, or of batches, that begin as given.

    Whole ones are returned as they are; the API says whether there is such a job. Raises Failure for a
    beginning of none or of several, and when the stack's database does not answer.
    """
    if all(map(_is_whole, given)):
        return list(given)
    import psycopg

    try:
        with psycopg.connect(running_stack(state)["database_url"], connect_timeout=_CONNECT_S) as connection:
            return [each if _is_whole(each) else _find(connection, each, kind) for each in given]
    except psycopg.Error as error:
        raise Failure(f"the stack's database does not answer: {error}") from error


def _is_whole(given: str) -> bool:
    try:
        UUID(given)
    except ValueError:
        return False
    return True


def _find(connection: psycopg.Connection[tuple[str]], beginning: str, kind: str) -> str:
    found = connection.execute(_QUERIES[kind], [beginning, _MOST_SHOWN]).fetchall() if beginning else []
    if not found:
        raise Failure(f"no {kind} begins with {beginning!r}; list jobs with: indexmill jobs", EXIT_USAGE)
    if len(found) > 1:
        known = ", ".join(row[0] for row in found)
        raise Failure(f"several ids begin with {beginning}: {known}", EXIT_USAGE)
    return str(found[0][0])
