"""Lines of `indexmill status` and `indexmill doctor` about a stack, from its tables and its health."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, ClassVar

import psycopg
import pytest
from typer.testing import CliRunner

from indexmill.platform.breakers import NAMES, BreakerState, BreakerStates
from indexmill.platform.time import SystemClock
from local.backends.ministack import MiniStack
from local.cli import callers
from local.doctor import machine
from local.stack import conditions
from tests.support.ministack import REGION
from tests.support.state_table import dynamodb, new_table


class Gateway(BaseHTTPRequestHandler):
    """Answers with a health."""

    health: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = json.dumps(self.health).encode()
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        """Take the firing of a schedule, which no sweeper gets."""
        self.do_GET()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def gateway() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Gateway)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def info(database_url: str, gateway: str, ministack: MiniStack) -> dict[str, Any]:
    return {
        "gateway": gateway,
        "database_url": database_url,
        "aws_endpoint": ministack.endpoint,
        "region": REGION,
        "resources": {"StateTable": new_table(dynamodb(ministack))},
    }


def lines(info: dict[str, Any]) -> list[str]:
    return list(conditions.lines(conditions.read(info)))


def broken(info: dict[str, Any], ministack: MiniStack, name: str, state: BreakerState) -> None:
    states = BreakerStates(info["resources"]["StateTable"], SystemClock(), dynamodb(ministack))
    assert states.replace(name, BreakerState(), state)


def held_back(database_url: str) -> None:
    with psycopg.connect(database_url, autocommit=True) as operator:
        operator.execute("SELECT set_maintenance('We move.')")
        operator.execute("INSERT INTO pauses (stage, reason, paused_by) VALUES ('*', 'a test', 'me')")
        operator.execute(
            "INSERT INTO incidents (kind, subject) VALUES ('breaker_open', 'embedding'), ('paused', '*'), "
            "('messages_lost', 'chunking')"
        )
        operator.execute("INSERT INTO incidents (kind, subject, closed_at) VALUES ('old', 'one', now())")
        for _ in range(2):
            operator.execute(
                "INSERT INTO dead_letters (queue, body, receive_count, reason, cause) "
                "VALUES ('scrape', '{}', 3, 'no', 'unreadable')"
            )


def test_without_conditions_there_is_no_line(info: dict[str, Any]) -> None:
    assert lines(info) == []


def test_maintenance_pauses_incidents_and_dead_letters_are_said(info: dict[str, Any]) -> None:
    held_back(info["database_url"])
    maintenance, paused, lost, dead = lines(info)
    assert maintenance.startswith("maintenance since ")
    assert maintenance.endswith("and is not known to requests yet: We move.")
    assert paused.startswith("every stage paused since ")
    assert paused.endswith("by me: a test")
    assert lost.startswith("incident messages_lost of chunking since ")
    assert dead.startswith("2 dead letters of scrape: unreadable, the last at ")


def test_breakers_are_said_as_they_are_now_and_not_when_the_sweeper_has_seen_them(
    info: dict[str, Any], ministack: MiniStack
) -> None:
    assert conditions.BREAKERS == NAMES
    now = SystemClock().now().timestamp()
    since = now - 90
    broken(info, ministack, "embedding", BreakerState(3, since, since, now + 60, refusal="It refuses us."))
    broken(info, ministack, "embedding_query", BreakerState(3, since, since, now - 60))
    broken(info, ministack, "index", BreakerState(2, now))
    of_documents, of_questions = lines(info)
    assert of_documents.startswith("breaker embedding open until ")
    assert of_documents.endswith(": It refuses us.")
    assert of_questions.startswith("breaker embedding_query waits for a probe, not closed since ")
    assert of_questions.endswith(": 3 failures in a row")


def test_without_the_state_table_breakers_are_said_as_the_sweeper_saw_them(info: dict[str, Any]) -> None:
    held_back(info["database_url"])
    shown = lines({**info, "aws_endpoint": "http://127.0.0.1:1"})
    assert "the state table does not answer" in shown
    assert any(each.startswith("breaker embedding open since ") for each in shown)


def test_doctor_says_how_the_stack_is(info: dict[str, Any], ministack: MiniStack) -> None:
    stages = {"scraping": "up", "chunking": "up", "embedding": "up"}
    Gateway.health = {"status": "ok", "stages": stages, "limits": "shared"}
    assert (machine.running(7, info).verdict, machine.running(7, info).text) == (
        "ok",
        "runs, process 7, ok",
    )
    Gateway.health = {
        "status": "degraded",
        "stages": stages | {"embedding": "breaker_open"},
        "limits": "local",
    }
    held_back(info["database_url"])
    now = SystemClock().now().timestamp()
    broken(info, ministack, "embedding", BreakerState(3, now, now, now + 60))
    found = machine.running(7, info)
    assert found.verdict == "note"
    assert found.text.startswith(
        "runs, process 7, degraded, embedding breaker_open, limits local; maintenance"
    )
    assert "breaker embedding open until" in found.text


def test_doctor_says_that_a_stack_does_not_answer(info: dict[str, Any]) -> None:
    found = machine.running(7, {**info, "gateway": "http://127.0.0.1:1"})
    assert found.verdict == "wrong"
    assert found.text.startswith("runs, process 7, and does not answer: ")


@pytest.mark.parametrize(("arguments", "now"), [(["on", "We move."], "on"), (["off"], "off")])
def test_maintenance_that_is_not_copied_yet_says_when_it_holds(
    info: dict[str, Any], arguments: list[str], now: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "running_stack", lambda _state: {**info, "control": info["gateway"]})
    monkeypatch.setattr(callers, "_COPIED_S", 0.3)
    shown = CliRunner().invoke(callers.maintenance, arguments)
    when = "it holds 5 s after the sweeper has copied it, which it tries each minute"
    assert (shown.exit_code, shown.output.replace("\n", " ").strip()) == (0, f"maintenance is {now}: {when}")


@pytest.mark.shows("R170")
def test_doctor_says_that_documents_have_vectors_of_another_model(info: dict[str, Any]) -> None:
    stages = {"scraping": "up", "chunking": "up", "embedding": "up"}
    Gateway.health = {"status": "ok", "stages": stages, "limits": "shared", "other_model": True}
    with psycopg.connect(info["database_url"], autocommit=True) as operator:
        operator.execute("INSERT INTO incidents (kind, subject) VALUES ('other_model', 'small (384)')")
    found = machine.running(7, info)
    assert (found.verdict, found.affects) == (
        "note",
        "jobs wait, or were not finished, or searches find less",
    )
    assert found.text.startswith("runs, process 7, ok; documents of model small (384) since ")
    assert found.text.endswith(": found by keywords alone until they are replayed")
