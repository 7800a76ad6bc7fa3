"""Postgres from a function: one lazy connection per execution environment, explicit transactions, no pool.

A pool would add threads that Lambda freezes between events, and RDS Proxy pins a session on prepared
statements and SET; so nothing here prepares, listens or sets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors

from indexmill.contracts.errors import ErrorCode, TransientError

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]

_CONNECT_TIMEOUT_S = 3
_TRANSACTION_RETRIES = 3
# Raised again after a fresh start the same work may well succeed: deadlock, serialization, lock time-out.
_CONTENTION = (errors.DeadlockDetected, errors.SerializationFailure, errors.LockNotAvailable)
# The connection is of no more use: the server went away, or is no longer the one that takes writes.
_LOST = (
    errors.OperationalError,
    errors.InterfaceError,
    errors.ReadOnlySqlTransaction,
    errors.IdleInTransactionSessionTimeout,
)
_OPTIONS = "-c statement_timeout=20000 -c lock_timeout=5000 -c idle_in_transaction_session_timeout=30000"


class Database:
    """A lazily opened autocommit connection that survives a server restart."""

    def __init__(self, url: str, *, options: str = _OPTIONS) -> None:
        """`url` is a libpq connection string; nothing is opened yet."""
        self._url = url
        self._options = options
        self._connection: Connection | None = None

    def connection(self) -> Connection:
        """Return the open connection, opening it when there is none.

        Raises TransientError(database_unavailable).
        """
        if self._connection is None or self._connection.closed:
            self._connection = self._open()
        return self._connection

    def run(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in one transaction and return what it returns.

        The transaction is run again from its top when its connection is lost (once; the server restarted, or
        this environment was frozen) and on contention (three times). Work must therefore be safe to repeat
        after a commit whose answer was lost: ids are made beforehand.
        Raises TransientError(database_unavailable) when the database is away or takes too long.
        """
        lost = False
        for attempt in range(_TRANSACTION_RETRIES + 1):
            connection = self.connection()
            try:
                with connection.transaction():
                    return work(connection)
            except _CONTENTION as error:
                if attempt == _TRANSACTION_RETRIES:
                    raise _unavailable() from error
            except errors.QueryCanceled as error:
                raise _unavailable() from error
            except _LOST as error:
                self.close()
                if lost:
                    raise _unavailable() from error
                lost = True
        raise _unavailable()

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run single autocommit statements that are safe to repeat.

        A dead connection is replaced once; contention is met by trying again, at most three times.
        Raises TransientError(database_unavailable).
        """
        lost = False
        for attempt in range(_TRANSACTION_RETRIES + 1):
            connection = self.connection()
            try:
                return work(connection)
            except _CONTENTION as error:
                if attempt == _TRANSACTION_RETRIES:
                    raise _unavailable() from error
            except errors.QueryCanceled as error:
                raise _unavailable() from error
            except _LOST as error:
                self.close()
                if lost:
                    raise _unavailable() from error
                lost = True
        raise _unavailable()

    def close(self) -> None:
        """Close the connection; the next use opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> Connection:
        try:
            return psycopg.connect(
                self._url,
                autocommit=True,
                prepare_threshold=None,
                connect_timeout=_CONNECT_TIMEOUT_S,
                options=self._options,
                keepalives_idle=30,
                tcp_user_timeout=10_000,
            )
        except psycopg.OperationalError as error:
            raise _unavailable() from error


def _unavailable() -> TransientError:
    return TransientError(
        ErrorCode.DATABASE_UNAVAILABLE, "The database cannot be reached right now.", retry_after=5
    )
