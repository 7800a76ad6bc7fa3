"""Apply the numbered migrations: Lambda handler and command line.

Each file `NNNN_name.sql` in this folder runs once, in order, in a transaction of its own, under an advisory
lock so that two deployments never migrate concurrently. Its digest is kept: a changed file is refused.

The service keeps running. A migration waits for a lock on a table in use for at most two seconds, since
statements behind it wait too; then it rolls back and is tried again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import psycopg

_LOCK = 7_204_115_260_711
_FOLDER = Path(__file__).resolve().parent
_USAGE_STATUS = 2
_LOCK_WAIT_S = 2.0
_LOCK_TRIES = 20


class ChangedMigrationError(Exception):
    """A migration that was already applied has another content now."""


def migrate(url: str, folder: Path = _FOLDER, *, lock_wait_s: float = _LOCK_WAIT_S) -> list[str]:
    """Bring the database at `url` up to date and return the names of the files that were applied.

    `lock_wait_s` is how long a file waits each time for a table in use, and its pause between two times.
    Raises ChangedMigrationError, and psycopg's errors for a migration that fails (it is rolled back whole).
    """
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        try:
            return _apply_all(connection, folder, lock_wait_s)
        finally:
            connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK,))


def _apply_all(connection: psycopg.Connection[Any], folder: Path, lock_wait_s: float) -> list[str]:
    connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_migrations ("
        " name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TIMESTAMPTZ NOT NULL DEFAULT now())"
    )
    known = dict(connection.execute("SELECT name, sha256 FROM schema_migrations").fetchall())
    applied = []
    for file in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql")):
        text = file.read_bytes()
        digest = hashlib.sha256(text).hexdigest()
        if file.name in known:
            if known[file.name] != digest:
                raise ChangedMigrationError(
                    f"{file.name} was changed after it was applied; add a new file instead"
                )
            continue
        _apply(connection, text, (file.name, digest), lock_wait_s)
        applied.append(file.name)
    return applied


def _apply(
    connection: psycopg.Connection[Any], text: bytes, name_and_digest: tuple[str, str], lock_wait_s: float
) -> None:
    for last in (*[False] * (_LOCK_TRIES - 1), True):
        try:
            with connection.transaction():
                connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{lock_wait_s}s",))
                connection.execute(text)
                connection.execute(
                    "INSERT INTO schema_migrations (name, sha256) VALUES (%s, %s)", name_and_digest
                )
        except psycopg.errors.LockNotAvailable:
            if last:
                raise
            connection.execute("SELECT pg_sleep(%s)", (lock_wait_s,))
        else:
            return


def handler(_event: dict[str, Any], _context: Any) -> dict[str, Any]:
    """Migrate on deployment; the database's address is a setting or a secret."""
    # The command line needs no library of ours.
    from indexmill.platform.aws.secrets import resolve

    url = resolve(os.environ.get("DATABASE_URL"), os.environ.get("DATABASE_URL_SECRET_ARN"))
    return {"applied": migrate(url)}


def main() -> int:
    """`python sql/migrate.py DATABASE_URL`: print what was applied."""
    if len(sys.argv[1:]) != 1:
        sys.stderr.write("usage: python sql/migrate.py DATABASE_URL\n")
        return _USAGE_STATUS
    for name in migrate(sys.argv[1]) or ["nothing to do"]:
        sys.stdout.write(f"{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
