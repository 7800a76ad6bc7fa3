"""`indexmill invoke`."""

from __future__ import annotations

import base64
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from local.cli.choices import function_names
from local.cli.terminal import (
    DEFAULT_STATE,
    EXIT_FAILED,
    EXIT_NO_STACK,
    EXIT_USAGE,
    Failure,
    JsonOption,
    StateOption,
    exit_with,
    note,
    print_json,
    running_stack,
)

if TYPE_CHECKING:
    import httpx

_LONGEST_S = 900.0


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of an invocation."""

    payload: str
    function_error: str | None
    request_id: str
    log: str

    def as_dict(self) -> dict[str, Any]:
        """Return the result for programs; a payload that is JSON is nested as such."""
        return {
            "function_error": self.function_error,
            "request_id": self.request_id,
            "result": _parsed(self.payload),
            "log": self.log.splitlines(),
        }


def run(
    function: Annotated[
        str, typer.Argument(help="Logical id or name of a function.", autocompletion=function_names)
    ],
    event: Annotated[
        str, typer.Argument(metavar="[EVENT.json|-]", help="A file, - for standard input, {} when not given.")
    ] = "",
    tail: Annotated[
        bool, typer.Option("--tail/--no-tail", help="Print the end of the log to standard error.")
    ] = True,
    as_json: JsonOption = False,
    state: StateOption = DEFAULT_STATE,
) -> None:
    """Invoke a function of the running stack once, and print its result.

    Exits with 1 when the function failed, and prints its error document; also when it reported some or all of
    a queue's messages as failed.

    Examples:

      indexmill invoke OrchestratorSweeper

      indexmill invoke ChunkingWorker task.json

      indexmill events sqs-scrape | indexmill invoke ScraperWorker -
    """
    payload = _payload(event)
    outcome = _invoke(running_stack(state)["invoke_endpoint"], function, payload)
    if as_json:
        print_json(outcome.as_dict())
    else:
        if tail and outcome.log:
            sys.stderr.write(outcome.log.rstrip("\n") + "\n")
            sys.stderr.flush()
        _print(outcome.payload)
    if outcome.function_error is not None:
        if not as_json:
            sys.stderr.write(f"error: {function} failed ({outcome.function_error})\n")
        exit_with(EXIT_FAILED)
    if problem := _unhandled(function, payload, outcome.payload):
        note(problem)
        exit_with(EXIT_FAILED)


def _unhandled(function: str, event: bytes, result: str) -> str:
    """Return a sentence about failed messages of a queue's batch; empty when there are none."""
    answer, given = _parsed(result), _parsed(event.decode("utf-8", "replace"))
    if not isinstance(answer, dict) or not isinstance(answer.get("batchItemFailures"), list):
        return ""
    records = given.get("Records") if isinstance(given, dict) else None
    if not isinstance(records, list) or not records:
        from local.cli.samples import SAMPLES

        name = next((f" {name}" for name, each in SAMPLES.items() if each.function == function), "")
        return (
            f"no message was processed: the event has no Records; one to start from: indexmill events{name}"
        )
    failed = len(answer["batchItemFailures"])
    if failed:
        return f"{failed} of {len(records)} messages failed; a queue would redeliver them"
    return ""


def _payload(event: str) -> bytes:
    """Return the event's document, which must be JSON."""
    if not event:
        return b"{}"
    try:
        found = sys.stdin.buffer.read() if event == "-" else Path(event).read_bytes()
    except OSError as error:
        raise Failure(f"{event} cannot be read: {error.strerror}", EXIT_USAGE) from error
    try:
        json.loads(found)
    except ValueError as error:
        where = "standard input" if event == "-" else event
        raise Failure(f"{where} is not JSON: {error}", EXIT_USAGE) from error
    return found


def _invoke(endpoint: str, function: str, payload: bytes) -> _Outcome:
    import httpx

    url = f"{endpoint}/2015-03-31/functions/{quote(function, safe='')}/invocations"
    headers = {"X-Amz-Log-Type": "Tail", "Content-Type": "application/json"}
    try:
        answer = httpx.post(url, content=payload, headers=headers, timeout=_LONGEST_S, trust_env=False)
    except httpx.HTTPError as error:
        raise Failure(f"the stack does not answer: {error}", EXIT_NO_STACK) from error
    if answer.status_code != 200:
        raise _refused(function, answer)
    return _Outcome(
        payload=answer.text,
        function_error=answer.headers.get("X-Amz-Function-Error"),
        request_id=answer.headers.get("x-amzn-RequestId", ""),
        log=base64.b64decode(answer.headers.get("X-Amz-Log-Result", "")).decode("utf-8", "replace"),
    )


def _refused(function: str, answer: httpx.Response) -> Failure:
    body = _parsed(answer.text)
    message = body.get("Message", "") if isinstance(body, dict) else answer.text
    if answer.status_code == 404:
        known = ", ".join(function_names(""))
        return Failure(f"there is no function {function}; the template has {known}", EXIT_USAGE)
    return Failure(f"{function} was not invoked: {answer.headers.get('x-amzn-ErrorType', '')} {message}")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _print(payload: str) -> None:
    """Print indented JSON on a terminal, the payload as received elsewhere."""
    found = _parsed(payload)
    if sys.stdout.isatty() and not isinstance(found, str):
        payload = json.dumps(found, indent=2, ensure_ascii=False)
    sys.stdout.write(payload.rstrip("\n") + "\n")
    sys.stdout.flush()
