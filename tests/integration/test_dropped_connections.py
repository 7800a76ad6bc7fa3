"""After our own 504 the work's connection is dropped: the next request does not join its transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest

from indexmill.contracts.errors import TransientError
from indexmill.platform.postgres.database import Connection, Database
from indexmill.platform.time import within
from tests.support.stack import eventually

pytestmark = pytest.mark.integration

LIMIT_S = 0.3
LOCK = 77


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    made = Database(database_url)
    yield made
    made.close()


@pytest.fixture
def other(database_url: str) -> Iterator[Connection]:
    """Another session, which holds a lock that the work waits for."""
    with psycopg.connect(database_url, autocommit=True) as session:
        session.execute("SELECT pg_advisory_lock(%s)", (LOCK,))
        yield session


def add(name: str, *, wait: bool = False) -> object:
    def work(connection: Connection) -> None:
        connection.execute("INSERT INTO inbox (message_id) VALUES (%s)", (name,))
        if wait:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))

    return work


def added(session: Connection) -> set[str]:
    return {name for (name,) in session.execute("SELECT message_id FROM inbox").fetchall()}


class Orphan:
    """Work that outlives its request, in a thread."""

    def __init__(self, database: Database) -> None:
        self.ended = threading.Event()
        self.later: list[Exception] = []
        self._database = database

    def __call__(self) -> None:
        try:
            for name in ("orphan", "orphan's next"):
                try:
                    self._database.run(add(name, wait=True))  # type: ignore[arg-type]
                except Exception as error:  # noqa: BLE001 - whatever it is, the work continues
                    self.later.append(error)
        finally:
            self.ended.set()


async def answered(work: object) -> None:
    """Answer one request with a limit."""
    await within(LIMIT_S, asyncio.to_thread(work), message="Too slow.", hint="")  # type: ignore[arg-type]


def test_the_next_request_does_not_join_the_transaction_of_the_one_before(
    database: Database, other: Connection
) -> None:
    orphan = Orphan(database)

    async def requests() -> None:
        with pytest.raises(TransientError, match=r"Too slow\."):
            await answered(orphan)
        first = database
        await answered(lambda: first.run(add("next")))  # type: ignore[arg-type]
        # Committed while the first transaction still waits for its lock.
        assert added(other) == {"next"}

    asyncio.run(requests())
    other.execute("SELECT pg_advisory_unlock_all()")
    assert orphan.ended.wait(20)
    eventually(lambda: added(other) == {"next"}, "only the request that was answered has changed something")
    codes = [error.code for error in orphan.later if isinstance(error, TransientError)]
    assert codes[-1] == "deadline_exceeded"
    assert len(orphan.later) == 2


def test_a_connection_that_an_orphan_opens_is_not_the_next_requests(database: Database) -> None:
    """The work wakes up after its request and uses the database only then."""
    woken, ended, errors = threading.Event(), threading.Event(), []

    def late() -> None:
        woken.wait(20)
        try:
            database.read(lambda c: c.execute("SELECT 1"))
        except TransientError as error:
            errors.append(error.code)
        ended.set()

    async def requests() -> None:
        with pytest.raises(TransientError):
            await answered(late)
        woken.set()
        await answered(lambda: database.run(add("next")))  # type: ignore[arg-type]

    asyncio.run(requests())
    assert ended.wait(20)
    assert errors == ["deadline_exceeded"]


def test_a_request_in_time_keeps_the_connection(database: Database) -> None:
    async def requests() -> None:
        first = await within(5, asyncio.to_thread(database.connection), message="", hint="")
        second = await within(5, asyncio.to_thread(database.connection), message="", hint="")
        assert first is second
        assert not second.closed

    asyncio.run(requests())
