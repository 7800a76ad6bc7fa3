"""Build the approximate indexes of vectors that are due: Lambda handler and command line.

An index is built beside the one in use by CREATE INDEX CONCURRENTLY, renamed in a short transaction, and the
one before is dropped CONCURRENTLY: searches and writers never wait for it. Only the owner of the table may do
that, in no transaction and on a session of its own: not through a pooler.

A build that is ended in the middle leaves an INVALID index that nothing reads; the next run drops it.
"""

from __future__ import annotations

import logging
import sys
import time
from contextlib import closing
from importlib import import_module
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

_LOCK: Final = 7_204_115_260_712
_USAGE_STATUS: Final = 2
_AGAIN_AFTER: Final = "1 hour"
"""Time after which the function tries again what it could not do, or was ended in."""
_FOR_THE_END_S: Final = 30.0
"""Seconds of the function's time that are kept for dropping what a canceled build leaves."""
_STEPS_PER_S: Final = 1e9
"""Numbers that are compared in a second: rows x lists x dimension is what a build compares."""
_BY_HAND: Final = "build it by `python sql/build_index.py DATABASE_URL`"
_SESSION: Final = """
SELECT set_config('maintenance_work_mem', least(524288, greatest(65536, setting::bigint * 2)) || 'kB', false),
       set_config('client_connection_check_interval', '5s', false)
FROM pg_settings WHERE name = 'effective_cache_size'
"""
"""A quarter of the memory that the server counts on for caching (in blocks of 8 KiB), 64 to 512 MiB; and the
server notices when this process was killed, and ends the build."""

_logger = logging.getLogger("indexmill.build_index")
_logger.setLevel(logging.INFO)


class BuildError(Exception):
    """An index could not be built; searches stay as they are."""


class Due(NamedTuple):
    """A space whose index is to be built (`outgrown`), or was left behind by a build."""

    space: int
    dimension: int
    over_rows: int
    """Chunks that there are."""
    lists: int
    outgrown: bool

    @property
    def estimate_s(self) -> float:
        """Return how long the build takes on a machine like the one of docs/performance.md, or slower."""
        return self.over_rows * self.lists * self.dimension / _STEPS_PER_S


def build_due(url: str, *, limit_s: float | None = None, again_after: str = "0 s") -> list[int]:
    """Build every index that is due and return the spaces; none while another process builds.

    `limit_s` is how long all builds together may take; the rest waits for the next run. `again_after` is an
    interval of Postgres: a space that was tried since then is left alone.
    Raises BuildError, when all others were built, for what would take, or took, longer than `limit_s`, and
    psycopg's errors.
    """
    with closing(build_connection(url)) as connection:
        (alone,) = connection.execute("SELECT pg_try_advisory_lock(%s)", (_LOCK,)).fetchall()[0]
        if not alone:
            _logger.info("another process builds")
            return []
        ends = None if limit_s is None else time.monotonic() + limit_s
        built, left = [], []
        for each in _due(connection, again_after):
            try:
                if _build(connection, each, ends):
                    built.append(each.space)
            except BuildError as error:
                left.append(str(error))
    if left:
        raise BuildError("; ".join([*left, f"built: {built or 'none'}"]))
    return built


def build_connection(url: str) -> psycopg.Connection[Any]:
    """Connect as the owner, for a build: without limits, and with as much memory as the server can spare."""
    # Beside this module in the function's folder, where neither is in a package.
    migrate = import_module(f"{__package__ or ''}.migrate".removeprefix("."))
    connection: psycopg.Connection[Any] = migrate.owner_connection(url)
    connection.execute(_SESSION)
    return connection


def _due(connection: psycopg.Connection[Any], again_after: str) -> list[Due]:
    cursor = connection.cursor(row_factory=namedtuple_row)
    rows = cursor.execute("SELECT * FROM index_builds_due(%s::interval)", (again_after,)).fetchall()
    return [Due(*row) for row in rows]


def _build(connection: psycopg.Connection[Any], due: Due, ends: float | None) -> bool:
    """Drop what a build left behind and build the index if that is due; return whether it was built."""
    limit_s = None if ends is None else max(0.1, ends - time.monotonic())
    connection.execute("UPDATE spaces SET index_tried_at = now() WHERE id = %s", (due.space,))
    own = f"vectors_space_{due.space}"
    new, old = own + "_new", own + "_old"
    for left in (new, old):
        _drop(connection, left)
    if not due.outgrown:
        return False
    if limit_s is not None and due.estimate_s > limit_s:
        raise BuildError(
            f"the index of space {due.space} over {due.over_rows} rows takes about {due.estimate_s:.0f} s,"
            f" and there are {limit_s:.0f} s: {_BY_HAND}"
        )
    _logger.info("building the index of space %d over %d rows", due.space, due.over_rows)
    text = sql.SQL(
        "CREATE INDEX CONCURRENTLY {} ON vectors"
        " USING ivfflat ((embedding::halfvec({})) halfvec_ip_ops) WITH (lists = {}) WHERE space = {}"
    )
    numbers = map(sql.Literal, (due.dimension, due.lists, due.space))
    _limit(connection, limit_s)
    try:
        connection.execute(text.format(sql.Identifier(new), *numbers))
    except psycopg.errors.QueryCanceled as error:
        _limit(connection, None)
        _drop(connection, new)
        if limit_s is None:
            raise
        raise BuildError(
            f"the index of space {due.space} over {due.over_rows} rows took longer than {limit_s:.1f} s:"
            f" {_BY_HAND}"
        ) from error
    _limit(connection, None)
    with connection.transaction():
        _rename(connection, own, old)
        _rename(connection, new, own)
        connection.execute("UPDATE spaces SET indexed_rows = %s WHERE id = %s", (due.over_rows, due.space))
    _drop(connection, old)
    return True


def _drop(connection: psycopg.Connection[Any], index: str) -> None:
    connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(sql.Identifier(index)))


def _rename(connection: psycopg.Connection[Any], index: str, name: str) -> None:
    """Rename an index if it is there: a lock that neither readers nor writers wait for."""
    text = sql.SQL("ALTER INDEX IF EXISTS {} RENAME TO {}")
    connection.execute(text.format(sql.Identifier(index), sql.Identifier(name)))


def _limit(connection: psycopg.Connection[Any], limit_s: float | None) -> None:
    value = "0" if limit_s is None else f"{limit_s * 1000:.0f}ms"
    connection.execute(sql.SQL("SET statement_timeout = {}").format(sql.Literal(value)))


def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Build what is due, within the function's time; the sweeper invokes this."""
    # The command line needs no library of ours.
    from indexmill.platform.postgres.address import configured_url

    url = configured_url()
    limit_s = context.get_remaining_time_in_millis() / 1000 - _FOR_THE_END_S
    return {"built": build_due(url, limit_s=limit_s, again_after=_AGAIN_AFTER)}


def main() -> int:
    """`python sql/build_index.py DATABASE_URL`: build what is due, without a limit, and print it."""
    if len(sys.argv[1:]) != 1:
        sys.stderr.write("usage: python sql/build_index.py DATABASE_URL\n")
        return _USAGE_STATUS
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    built = build_due(sys.argv[1])
    sys.stdout.write("".join(f"space {space}: built\n" for space in built) or "nothing to do\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
