"""A server, or a network to it, that takes everything and answers nothing is not waited for without end."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from indexmill.contracts.errors import TransientError
from indexmill.orchestrator.http.api import routes
from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.wiring import build_use_cases
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.postgres.database import Connection, Database
from local.faults.toxics import Toxic
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.function_env import environment
from tests.support.lines import Line, line_to

pytestmark = pytest.mark.integration

SILENCE = Toxic("blackhole")


@pytest.fixture
def line(database_url: str) -> Iterator[Line]:
    with line_to(database_url) as found:
        yield found


@pytest.fixture
def _event_loop() -> Iterator[None]:
    """Give the main thread a loop, as Lambda's has."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


def submit() -> dict[str, Any]:
    body = {"url": "https://example.com/", "corpus_name": "docs"}
    return api_event("POST", "/orchestrator/jobs", caller=caller_claims(), body=body)


@pytest.mark.fault("F78")
@pytest.mark.usefixtures("_event_loop")
def test_a_submit_is_answered_within_five_seconds(line: Line) -> None:
    settings = OrchestratorApiSettings.from_environment(
        {**environment("OrchestratorApi"), "DATABASE_URL": line.url}
    )
    api = build_use_cases(settings)
    handler = lambda_handler(create_app([routes(api)], api.observability), api.observability)
    listing = api_event("GET", "/orchestrator/jobs", caller=caller_claims())
    assert handler(listing, FakeContext())["statusCode"] == 200
    line.toxic = SILENCE
    for kind in ("on the open connection", "on a new one"):
        began = time.monotonic()
        answer = handler(submit(), FakeContext())
        assert time.monotonic() - began < 5, kind
        error = json.loads(answer["body"])["error"]
        assert (answer["statusCode"], error["code"]) == (503, "database_unavailable")
    line.toxic = None
    assert handler(listing, FakeContext())["statusCode"] == 200


@pytest.mark.fault("F78")
@pytest.mark.parametrize("way", ["run", "read"])
def test_what_was_not_answered_in_time_is_not_begun_again(line: Line, way: str) -> None:
    database, begun = Database(line.url, answer_s=0.3), []
    first = database.connection()

    def work(connection: Connection) -> list[tuple[Any, ...]]:
        begun.append(connection)
        line.toxic = SILENCE
        return connection.execute("SELECT 1").fetchall()

    with pytest.raises(TransientError) as silent:
        getattr(database, way)(work)
    assert (silent.value.code, begun) == ("database_unavailable", [first])
    assert first.closed
    line.toxic = None
    assert database.read(lambda c: c.execute("SELECT 2").fetchall()) == [(2,)]
    database.close()


def test_a_slow_statement_is_given_up_by_the_server_and_costs_no_connection(database_url: str) -> None:
    database = Database(make_conninfo(database_url, options="-c statement_timeout=300"), answer_s=0.3)
    first = database.connection()
    with pytest.raises(TransientError):
        database.read(lambda c: c.execute("SELECT pg_sleep(5)"))
    assert database.connection() is first
    assert not first.closed
    database.close()


@pytest.mark.direct
def test_statements_of_workers_may_take_longer(database_url: str) -> None:
    database = Database(database_url)

    def work(connection: Connection) -> int:
        connection.execute("CREATE TEMPORARY TABLE copied (line TEXT)")
        with connection.cursor().copy("COPY copied FROM STDIN") as copy:
            for number in range(50_000):
                copy.write_row((f"{number} " * 10,))
        connection.execute("SELECT pg_sleep(5)")
        (row,) = connection.execute("SELECT count(*) FROM copied").fetchall()
        return int(row[0])

    assert database.run(work) == 50_000
    database.close()


def test_errors_of_the_server_stay_what_they_are(database_url: str) -> None:
    database = Database(database_url, answer_s=1)
    with pytest.raises(psycopg.errors.UndefinedTable):
        database.read(lambda c: c.execute("SELECT FROM no_such_table"))
    with pytest.raises(psycopg.errors.UniqueViolation):
        database.run(_twice)
    assert database.read(lambda c: c.execute("SELECT 1").fetchall()) == [(1,)]
    database.close()


def _twice(connection: Connection) -> None:
    for _ in range(2):
        connection.execute("INSERT INTO inbox (message_id) VALUES ('one')")
