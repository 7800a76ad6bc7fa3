"""Errors of functions as lines: what is reported, how often, and where the code is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from local.cli import function_errors
from local.compute.error_documents import place
from local.compute.log_files import LogRecord
from local.stack.function_errors import FunctionErrors

ROOT = Path("/project")


class Terminal:
    """Lines that a person sees, at a time that the test sets."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.now = 0.0
        self.errors = FunctionErrors(self.lines.append, lambda: self.now, ROOT)

    def log(self, message: str, **more: Any) -> None:
        self.errors.on_log(LogRecord("", "Worker", "r-1", "platform", message, more))

    def fails(self, error: str, **more: Any) -> None:
        self.log("START RequestId: r-1 Version: $LATEST", jobs=["job-1"])
        self.log("END RequestId: r-1", failure=error, **more)


def test_a_failure_is_one_line_with_place_and_command() -> None:
    seen = Terminal()
    seen.fails("LookupError: no such shelf", place=f"{ROOT}/functions/worker.py:12")
    assert seen.lines == [
        "Worker failed at functions/worker.py:12: LookupError: no such shelf "
        "(see more: indexmill logs --request r-1)"
    ]
    (kept,) = seen.errors.since(0)
    assert (kept["jobs"], kept["number"]) == (("job-1",), 1)
    assert seen.errors.since(1) == []


def test_the_same_failure_is_a_line_a_minute_and_another_one_at_once() -> None:
    seen = Terminal()
    for _ in range(3):
        seen.fails("LookupError: no such shelf")
    seen.fails("KeyError: 'shelf'")
    assert len(seen.lines) == 2
    seen.now = 61.0
    seen.fails("LookupError: no such shelf")
    assert len(seen.lines) == 3
    assert len(seen.errors.since(0)) == 5


@pytest.mark.parametrize(
    "more", [{}, {"failure": "Exception: Unauthorized"}], ids=["a success", "an authorizer's refusal"]
)
def test_what_is_no_error_is_no_line(more: Mapping[str, Any]) -> None:
    seen = Terminal()
    seen.log("START RequestId: r-1 Version: $LATEST")
    seen.log("END RequestId: r-1", **more)
    assert (seen.lines, seen.errors.since(0)) == ([], [])


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        (['  File "/a/app.py", line 3, in handler\n    work()\n'], "/a/app.py:3"),
        (['  File "/a/app.py" Line 9\n    def x(:\n'], "/a/app.py:9"),
        (
            [
                '  File "/a/app.py", line 3, in handler\n    work()\n',
                '  File "/v/lib/python3.13/site-packages/httpx/_x.py", line 7, in get\n',
            ],
            "/a/app.py:3",
        ),
        (
            ['  File "/usr/lib/python3.13/json/decoder.py", line 7, in x\n'],
            "/usr/lib/python3.13/json/decoder.py:7",
        ),
        ([], None),
        (None, None),
    ],
)
def test_the_place_is_the_last_frame_of_the_projects_own(frames: object, found: str | None) -> None:
    document = {"errorType": "E", "errorMessage": "m", **({} if frames is None else {"stackTrace": frames})}
    assert place(json.dumps(document).encode()) == found


def test_errors_behind_a_request_of_the_gateway_are_known() -> None:
    seen = Terminal()
    seen.log("START RequestId: r-1 Version: $LATEST", gateway_request_id="g-1")
    frame = '  File "/project/a.py", line 3, in f\n    g()'
    trace = f"Traceback (most recent call last):\n{frame}\nKeyError: 'x'\n\nmore"
    line = {"level": "ERROR", "message": "request.failed", "service": "s", "exception": trace}
    seen.errors.on_log(LogRecord("", "Worker", "r-1", "stdout", json.dumps(line)))
    (kept,) = seen.errors.since(0)
    assert (kept["error"], kept["place"], kept["gateway_request_id"]) == ("KeyError: 'x'", "a.py:3", "g-1")


def test_a_command_shows_the_errors_behind_its_request_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = {"function": "Api", "error": "KeyError: 'x'", "place": "a.py:3"}
    kept = [{**known, "gateway_request_id": each} for each in ("g-1", "g-2", "g-1", None)]
    monkeypatch.setattr(function_errors, "_read", lambda *_: kept)
    function_errors.show_errors_behind("http://127.0.0.1:1", "g-1")
    assert capsys.readouterr().err == (
        "note: Api failed at a.py:3: KeyError: 'x' (see more: indexmill logs --request g-1)\n"
    )
