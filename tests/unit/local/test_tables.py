"""The tables of the status command."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from local.cli import tables

FUNCTION = dict.fromkeys(("environments", "busy", "waiting", "invocations", "errors", "throttles"), 0)
FUNCTION["cold_starts"] = 0


def text(table: Table) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as shown:
        console.print(table)
    return shown.get()


def found(**more: Any) -> dict[str, Any]:
    return {"functions": {}, "sources": {}, "queues": {}, **more}


def test_only_functions_that_did_something_are_shown() -> None:
    busy = FUNCTION | {"invocations": 3, "environments": 1}
    took = {"Busy": {"p50_ms": 12.4, "p95_ms": 80.0, "last_s": 61.0}}
    shown = text(tables.functions(found(functions={"Busy": busy, "Idle": FUNCTION}, durations=took)))
    assert "Idle" not in shown
    assert "throttled" not in shown
    assert " ".join(shown.splitlines()[1].split()) == "Busy 1 0 3 0 0 12 80 1 min 1 s ago"


def test_dead_letters_are_shown_beside_their_queue() -> None:
    depth = {"visible": 4, "in_flight": 1, "delayed": 0, "oldest_s": 61.2}
    queues = {"ScrapeQueue": depth, "ScrapeDlq": {"visible": 2, "in_flight": 1, "delayed": 0}}
    source = {"queue": "ScrapeQueue", "enabled": False, "messages": 9, "in_flight": 1}
    shown = text(tables.queues(found(queues=queues, sources={"s": source}))).splitlines()
    assert len(shown) == 2
    assert " ".join(shown[1].split()) == "ScrapeQueue 4 1 0 1 min 1 s 3 9 source is disabled"


@pytest.mark.parametrize(
    ("depth", "shown"),
    [
        ({"visible": 0, "in_flight": 1, "delayed": 0, "oldest_s": 3.9}, "Q 0 1 0 3 s ?"),
        ({"visible": 0, "in_flight": 1, "delayed": 0, "oldest_s": None}, "Q 0 1 0 ? ?"),
        ({"visible": 0, "in_flight": 0, "delayed": 0, "oldest_s": 0.0}, "Q 0 0 0 ?"),
    ],
)
def test_an_unknown_age_is_no_age_of_zero(depth: dict[str, Any], shown: str) -> None:
    lines = text(tables.queues(found(queues={"Q": depth}))).splitlines()
    assert " ".join(lines[1].split()) == shown


def test_messages_that_a_failure_left_are_explained() -> None:
    depth = {"ScrapeQueue": {"visible": 0, "in_flight": 2, "delayed": 0}}
    source = {"queue": "ScrapeQueue", "function": "Worker", "visibility_s": 360, "in_flight": 0}
    source |= {"function_errors": 1, "item_failures": 1}

    def shown(**more: Any) -> str:
        took = {"Worker": {"last_s": 50.0}}
        table = tables.queues(found(queues=depth, sources={"s": source | more}, durations=took))
        return text(table).splitlines()[1]

    assert "failed, hidden for 5 min 10 s at most" in shown()
    assert "returned for a retry, each with its own delay" in shown(function_errors=0)
    assert "hidden" not in shown(in_flight=1)


def test_queues_that_do_not_answer_are_reported() -> None:
    assert "does not answer" in text(tables.queues(found()))


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (3661, "1 h 1 min"), (90000, "1 d 1 h")],
)
def test_lengths_of_time_are_short(seconds: float, shown: str) -> None:
    assert tables.age(seconds) == shown
