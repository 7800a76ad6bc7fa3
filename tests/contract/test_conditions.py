"""Lines of `indexmill status` and `indexmill doctor` about a stack, from its tables and its health."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any, ClassVar

import psycopg
import pytest

from local.doctor import machine
from local.stack import conditions


class Gateway(BaseHTTPRequestHandler):
    """Answers with a health."""

    health: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        body = json.dumps(self.health).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def gateway() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Gateway)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


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


def test_without_conditions_there_is_no_line(database_url: str) -> None:
    assert list(conditions.lines(conditions.read(database_url))) == []


def test_maintenance_pauses_incidents_and_dead_letters_are_said(database_url: str) -> None:
    held_back(database_url)
    maintenance, paused, breaker, lost, dead = conditions.lines(conditions.read(database_url))
    assert maintenance.startswith("maintenance since ")
    assert maintenance.endswith("and is not known to requests yet: We move.")
    assert paused.startswith("every stage paused since ")
    assert paused.endswith("by me: a test")
    assert breaker.startswith("breaker embedding open since ")
    assert lost.startswith("incident messages_lost of chunking since ")
    assert dead.startswith("2 dead letters of scrape: unreadable, the last at ")


def test_doctor_says_how_the_stack_is(database_url: str, gateway: str) -> None:
    stages = {"scraping": "up", "chunking": "up", "embedding": "up"}
    Gateway.health = {"status": "ok", "stages": stages, "limits": "shared"}
    info = {"gateway": gateway, "database_url": database_url}
    assert (machine.running(7, info).verdict, machine.running(7, info).text) == (
        "ok",
        "runs, process 7, ok",
    )
    Gateway.health = {
        "status": "degraded",
        "stages": stages | {"embedding": "breaker_open"},
        "limits": "local",
    }
    held_back(database_url)
    found = machine.running(7, info)
    assert found.verdict == "note"
    assert found.text.startswith(
        "runs, process 7, degraded, embedding breaker_open, limits local; maintenance"
    )
    assert "breaker embedding open since" in found.text


def test_doctor_says_that_a_stack_does_not_answer(database_url: str) -> None:
    found = machine.running(7, {"gateway": "http://127.0.0.1:1", "database_url": database_url})
    assert found.verdict == "wrong"
    assert found.text.startswith("runs, process 7, and does not answer: ")


@pytest.mark.shows("R170")
def test_doctor_says_that_documents_have_vectors_of_another_model(database_url: str, gateway: str) -> None:
    stages = {"scraping": "up", "chunking": "up", "embedding": "up"}
    Gateway.health = {"status": "ok", "stages": stages, "limits": "shared", "other_model": True}
    with psycopg.connect(database_url, autocommit=True) as operator:
        operator.execute("INSERT INTO incidents (kind, subject) VALUES ('other_model', 'small (384)')")
    found = machine.running(7, {"gateway": gateway, "database_url": database_url})
    assert (found.verdict, found.affects) == (
        "note",
        "jobs wait, or were not finished, or searches find less",
    )
    assert found.text.startswith("runs, process 7, ok; documents of model small (384) since ")
    assert found.text.endswith(": found by keywords alone until they are replayed")
