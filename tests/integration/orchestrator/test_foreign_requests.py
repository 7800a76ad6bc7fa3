"""A request about another caller's object costs the database what one about an unknown object costs."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from indexmill.contracts.identity import CallerContext
from indexmill.contracts.job import SubmitRequest
from indexmill.orchestrator.http.api import action_routes, routes
from indexmill.orchestrator.settings import OrchestratorApiSettings
from indexmill.orchestrator.submission.submit import SubmitJobs
from indexmill.orchestrator.wiring import build_parts, build_use_cases
from indexmill.platform.http.app import create_app, lambda_handler
from indexmill.platform.postgres.database import Database
from tests.support.events import FakeContext, api_event, caller_claims
from tests.support.foreign_objects import UNKNOWN, Row, rows
from tests.support.function_env import environment
from tests.support.job_stores import Sent
from tests.support.refusals import BODIES
from tests.twins.uploads import objects

pytestmark = pytest.mark.integration

TRIES = 1_000
NAMED_BY_PATH = [row for row in rows() if row.path.startswith("/orchestrator/") and row.place == "path"]
"""The stream has a function of its own, with the same read."""
ROWS = [row for row in NAMED_BY_PATH if not row.path.endswith("/stream")]


class Handler:
    """The function's handler as it is deployed, and what it asks of the database."""

    def __init__(self, database_url: str) -> None:
        settings = OrchestratorApiSettings.from_environment(
            {**environment("OrchestratorApi"), "DATABASE_URL": database_url}
        )
        self.database = Database(database_url)
        parts = replace(build_parts(settings, self.database), queues={})
        api = build_use_cases(settings, parts)
        app = create_app([routes(api), action_routes(api)], api.observability)
        self._handle = lambda_handler(app, api.observability)
        submit = SubmitJobs(parts.store, Sent(), *objects())
        foreign = submit(
            CallerContext("somebody-else"),
            SubmitRequest(urls=["https://example.com/a", "https://example.com/b"]),
            "r",
        )
        self.foreign = {"job": foreign.job_id, "batch": str(foreign.batch_id)}

    def __call__(self, row: Row, named: str) -> dict[str, Any]:
        body = BODIES.get(row.path) if row.method == "POST" else None
        path = row.path.format(**{str(row.keys[0]): named})
        more = {} if body is None else {"body": body}
        answer = self._handle(api_event(row.method, path, caller=caller_claims(), **more), FakeContext())
        assert named not in answer["body"]
        return answer


@pytest.fixture
def handler(database_url: str) -> Iterator[Handler]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    made = Handler(database_url)
    yield made
    made.database.close()
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list in which every statement appears."""
    seen: list[str] = []
    execute = psycopg.Cursor.execute

    def counted(cursor: Any, query: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(str(query))
        return execute(cursor, query, *arguments, **options)

    monkeypatch.setattr(psycopg.Cursor, "execute", counted)
    return seen


@pytest.mark.shows("B72", "B90")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.method}-{row.path}")
def test_a_foreign_object_costs_the_statements_of_an_unknown_one(
    handler: Handler, statements: list[str], row: Row
) -> None:
    handler(row, UNKNOWN[row.kind])
    found = []
    for named in (handler.foreign[row.kind], UNKNOWN[row.kind]):
        statements.clear()
        answer = handler(row, named)
        found.append((answer["statusCode"], json.loads(answer["body"]), list(statements)))
    assert found[0] == found[1]
    assert found[0][0] in (403, 404)


@pytest.mark.long
@pytest.mark.shows("B90")
@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.method == "GET"], ids=lambda row: f"{row.method}-{row.path}"
)
def test_a_foreign_object_takes_the_time_of_an_unknown_one(handler: Handler, row: Row) -> None:
    """The means of many tries, in turn, without the slowest and the fastest of them."""
    took: dict[str, list[float]] = {handler.foreign[row.kind]: [], UNKNOWN[row.kind]: []}
    for _ in range(TRIES):
        for named, times in took.items():
            began = time.perf_counter()
            handler(row, named)
            times.append(time.perf_counter() - began)
    foreign, unknown = (sorted(times)[TRIES // 10 : -TRIES // 10] for times in took.values())
    apart = abs(statistics.fmean(foreign) - statistics.fmean(unknown))
    error = ((statistics.variance(foreign) + statistics.variance(unknown)) / len(foreign)) ** 0.5
    assert apart < max(4 * error, 0.02 * statistics.fmean(unknown))
