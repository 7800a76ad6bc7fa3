"""Postgres from a function: one lazy connection per execution environment, explicit transactions, no pool.

A pool would add threads that Lambda freezes between events. RDS Proxy and PgBouncer refuse startup options,
and RDS Proxy pins a session on prepared statements and SET; so nothing here prepares, listens or sets
(docs/decisions/0020-nothing-pins-a-session.md). The server's time limits are settings of the database and the
login, which the Migrator writes; a new connection looks whether they are there.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, LiteralString, TypeVar, overload

import psycopg
from psycopg import errors
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.platform.postgres.address import Address
from indexmill.platform.time import DEADLINE

_HEAD: Final = re.compile(r"^-- (name|fragment): (\w+)$", re.MULTILINE)
_COMMENT: Final = re.compile(r"^\s*--.*\n?", re.MULTILINE)
_INCLUDE: Final = re.compile(r"\{\{(\w+)\}\}")


@overload
def storable(text: str) -> str: ...
@overload
def storable(text: None) -> None: ...
def storable(text: str | None) -> str | None:
    """Return `text` with the characters that no store takes (NUL, lone surrogates) replaced one by one."""
    return None if text is None else text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def json_of(model: BaseModel | None) -> Jsonb | None:
    """Return a model as a value of a statement, without fields that are None."""
    return Jsonb(model.model_dump(mode="json", exclude_none=True)) if model else None


def load(folder: Path, constants: Mapping[str, object] | None = None) -> dict[str, LiteralString]:
    """Return every statement of the folder's .sql files by name.

    `-- name: x` begins a statement and `-- fragment: x` a text that statements include as `{{x}}`; other
    comment lines are not sent to the server. `constants` are fragments too, for numbers that the code knows.
    Raises ValueError for a name that is used twice, and KeyError for an include that is not defined.
    """
    texts: dict[str, str] = {name: str(value) for name, value in (constants or {}).items()}
    names: list[str] = []
    for file in sorted(folder.glob("*.sql")):
        parts = _HEAD.split(file.read_text(encoding="utf-8"))[1:]
        for kind, name, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            if name in texts:
                raise ValueError(f"{file.name}: {name} is defined twice")
            texts[name] = _COMMENT.sub("", text).strip().removesuffix(";")
            if kind == "name":
                names.append(name)

    def filled(text: str) -> str:
        return _INCLUDE.sub(lambda include: filled(texts[include[1]]), text)

    # Literal in the sense of PEP 675: only code and the constants are in them.
    return {name: filled(texts[name]) for name in names}


T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 3
_TRANSACTION_RETRIES = 3
# Raised again after a fresh start the same work may well succeed: deadlock, serialization, lock time-out.
_CONTENTION = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
# The connection cannot be used any more: the server closed it, or no longer accepts writes.
_LOST = (
    errors.OperationalError,
    errors.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
LOCK_S: Final = 5.0
IDLE_S: Final = 30.0
"""Seconds; sql/migrate.py writes these limits, and `ANSWER_S`, for the database."""
_LIMITS: Final = """
    SELECT name, extract(epoch FROM current_setting(name)::interval)::float8
    FROM unnest(ARRAY['statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout']) AS name
"""
_LOG: Final = logging.getLogger(__name__)
ANSWER_S: Final = 20.0
"""Time limit of a statement in seconds when no caller waits for it."""
_ON_ITS_WAY_S: Final = 0.5
"""Seconds after the limit in which the error of a statement that the server canceled arrives."""


class NoAnswer(psycopg.OperationalError):
    """The server accepted a statement and did not answer: it is unknown whether it was executed."""


class _Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which every wait for an answer has a limit.

    Neither the server's limits nor TCP's see a server, or a network, that takes everything and sends nothing.
    """

    longest_wait_s: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        """Wait for one statement's end; raises NoAnswer, after which the connection is closed."""
        limit = self.longest_wait_s if timeout is None else timeout
        deadline = DEADLINE.get()
        if deadline is not None:
            # The route that waits for work in a thread gives it up before this.
            left = deadline.left() + _ON_ITS_WAY_S
            limit = left if limit is None else min(limit, left)
        try:
            return super().wait(gen, interval, limit)
        except psycopg.OperationalError as error:
            # What the server says, and a connection that it closed, end the statement; only silence does not.
            if self.pgconn.transaction_status != TransactionStatus.ACTIVE:
                raise
            self.pgconn.finish()
            raise NoAnswer("the server does not answer") from error


class Database:
    """A lazily opened autocommit connection that survives a server restart."""

    def __init__(self, address: str | Address, *, answer_s: float = ANSWER_S) -> None:
        """`address` is a libpq connection string, or gives one; nothing is opened or read yet.

        A statement has `answer_s` to be answered: the server cancels it then by the limit of the login or the
        database, and the connection to a server that does not answer half a second later is dropped.
        """
        self._address = address
        self._answer_s = answer_s
        self._warned: set[str] = set()
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Return the open connection, opening it when there is none.

        Raises TransientError(database_unavailable), or (deadline_exceeded) for work of a request that was
        answered meanwhile: another request has the connection now.
        """
        self._check_request()
        found = self._connection
        if found is None or found.closed:
            # Known before the request is asked about again: one that ends from now on drops it.
            found = self._connection = self._open()
            try:
                self._check_request()
            except TransientError:
                self._close(found)
                raise
        return found

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction and return what it returns.

        The transaction is run again from its top when its connection is lost (once; the server restarted, or
        this environment was frozen) and on contention (three times); not when it took too long. Work must be
        safe to repeat after a commit whose answer was lost all the same: ids are made beforehand.
        Raises TransientError(database_unavailable) when the database is unavailable or takes too long.
        """
        return self._repeating(lambda connection: _in_transaction(connection, work))

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run single autocommit statements that are safe to repeat.

        A dead connection is replaced once; contention is met by trying again, at most three times.
        Raises TransientError(database_unavailable).
        """
        return self._repeating(work)

    def _repeating(self, work: Callable[[Connection], T]) -> T:
        lost = False
        for attempt in range(_TRANSACTION_RETRIES + 1):
            connection = self.connection()
            try:
                return work(connection)
            except _CONTENTION as error:
                if attempt == _TRANSACTION_RETRIES:
                    raise _unavailable() from error
            except (errors.QueryCanceled, NoAnswer) as error:
                raise _too_slow(error) from error
            except psycopg.Error as error:
                # A pooler whose server left may answer with two errors at once: psycopg reports neither.
                if not isinstance(error, _LOST) and not connection.closed:
                    raise
                self._close(connection)
                if lost:
                    raise _unavailable() from error
                lost = True
        raise _unavailable()

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            self._close(self._connection)

    def _close(self, connection: Connection) -> None:
        connection.close()
        if self._connection is connection:
            self._connection = None

    def _check_request(self) -> None:
        """Have the connection dropped with the running request; raises TransientError when that has ended."""
        deadline = DEADLINE.get()
        if deadline is not None:
            if not deadline.left():
                raise deadline.exceeded()
            deadline.hold(self, self._drop)

    def _drop(self) -> None:
        """Take the connection from the thread that uses it: its transaction is rolled back.

        Only the socket is shut down here: libpq's own memory belongs to that thread.
        """
        dropped, self._connection = self._connection, None
        if dropped is None or dropped.closed:
            return
        with (
            suppress(OSError, psycopg.OperationalError),
            socket.socket(fileno=os.dup(dropped.fileno())) as own,
        ):
            own.shutdown(socket.SHUT_RDWR)

    def _open(self) -> Connection:
        url = self._address if isinstance(self._address, str) else self._address.current()
        try:
            return self._connect(url)
        except psycopg.Error as error:
            # libpq does not tell why a login failed: each failure but silence may be a password of before.
            silent = isinstance(error, errors.ConnectionTimeout)
            valid = url if silent or isinstance(self._address, str) else self._address.again()
            if valid == url:
                raise _unavailable() from error
        try:
            return self._connect(valid)
        except psycopg.Error as error:
            raise _unavailable() from error

    def _connect(self, url: str) -> Connection:
        made = _Connection.connect(
            url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=_CONNECT_TIMEOUT_S,
            keepalives_idle=30,
            tcp_user_timeout=10_000,
        )
        made.longest_wait_s = self._answer_s + _ON_ITS_WAY_S
        try:
            self._look_at_limits(made)
        except psycopg.Error:
            made.close()
            raise
        return made

    def _look_at_limits(self, connection: Connection) -> None:
        """Warn, once per login, of limits that the Migrator has not set, or not as low."""
        longest = {
            "statement_timeout": self._answer_s,
            "lock_timeout": LOCK_S,
            "idle_in_transaction_session_timeout": IDLE_S,
        }
        held = connection.execute(_LIMITS).fetchall()
        wrong = [f"{name} is {seconds:g} s" for name, seconds in held if not 0 < seconds <= longest[name]]
        login = connection.info.user
        if wrong and login not in self._warned:
            self._warned.add(login)
            _LOG.warning(
                "database limits are missing: %s; the Migrator sets them",
                ", ".join(wrong),
                extra={"login": login, "limits": dict(held), "wanted": longest},
            )


def _in_transaction(connection: Connection, work: Callable[[Connection], T]) -> T:
    with connection.transaction():
        return work(connection)


def _too_slow(error: psycopg.Error) -> TransientError:
    """Return the error for a statement without an answer in time.

    The server canceled a slow one; a silent one is unavailable, unless the caller's own time has ended.
    """
    deadline = DEADLINE.get()
    if deadline is not None and (isinstance(error, errors.QueryCanceled) or not deadline.left()):
        return deadline.exceeded()
    return _unavailable()


def _unavailable() -> TransientError:
    return TransientError(
        ErrorCode.DATABASE_UNAVAILABLE, "The database cannot be reached right now.", retry_after=5
    )


class Statements:
    """Named statements on one connection, in its transaction when there is one. Rows are dicts by column."""

    def __init__(self, connection: Connection, texts: Mapping[str, LiteralString]) -> None:
        """`texts` are the statements by name, as `statements.load` returns them."""
        self._connection, self._texts = connection, texts

    def all(self, name: str, **values: Any) -> list[dict[str, Any]]:
        """Return all rows of the statement."""
        return self._cursor().execute(self._texts[name], values).fetchall()

    def one(self, name: str, **values: Any) -> dict[str, Any] | None:
        """Return its first row."""
        return self._cursor().execute(self._texts[name], values).fetchone()

    def found(self, name: str, **values: Any) -> bool:
        """Return the column `found` of its first row; False without one."""
        row = self.one(name, **values)
        return bool(row and row["found"])

    def do(self, name: str, **values: Any) -> int:
        """Execute it and return how many rows it changed."""
        return self._connection.execute(self._texts[name], values).rowcount

    def _cursor(self) -> psycopg.Cursor[dict[str, Any]]:
        return self._connection.cursor(row_factory=dict_row)
