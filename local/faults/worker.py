"""Fault injection in a function's process, between its code and its libraries."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from local.faults import call_names, effects
from local.faults.aws_calls import wrap_clients
from local.faults.control import FaultControl
from local.faults.rules import Rule
from local.faults.skew import Skew

FOLDER: Final = "FAULTS_FOLDER"
"""Variable with the path of the control folder."""
_WROTE: Final = "_faults_wrote"
_HTTP_CLIENTS: Final = ("httpx", "httpx2")
"""The second is a dependency of `openai`."""


class Worker:
    """State of a process: its function, and the event of the current invocation."""

    def __init__(self, control: FaultControl, function: str) -> None:
        self._control = control
        self._function = function
        self._event = ""
        self._request = ""
        self._skew = Skew()

    def invocation_started(self, request: str, event: str) -> float:
        """Record the start of an invocation; return the clock skew in seconds."""
        self._request, self._event = request, event
        self._control.invocation_started(event)
        seconds = self._control.skew_of(self._function)
        self._skew.set(seconds)
        return seconds

    def record_sent(self, messages: Sequence[dict[str, Any]]) -> None:
        """Record messages that it is about to send."""
        self._control.record_sent(messages)

    def next_fault(self, place: str, *, write: bool = True) -> Rule | None:
        """Return the fault that applies to a call at `place`, if any."""
        whole = f"{self._function}/{place}"
        return self._control.next_fault(whole, event=self._event, request=self._request, write=write)


def install() -> None:
    """Wrap the libraries; called once in a process, before the function's module is imported."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    worker = Worker(FaultControl(Path(folder)), os.environ.get("AWS_LAMBDA_FUNCTION_NAME", ""))
    _wrap_events(worker)
    _wrap_aws(worker)
    _wrap_psycopg(worker)
    for name in _HTTP_CLIENTS:
        _wrap_http(worker, import_module(name))


def _wrap_events(worker: Worker) -> None:
    from awslambdaric import lambda_runtime_client

    base = lambda_runtime_client.BaseLambdaRuntimeClient
    original = base.wait_next_invocation

    def wait_next_invocation(self: Any) -> Any:
        request = original(self)
        body = request.event_body
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        ahead = worker.invocation_started(str(request.invoke_id), text)
        if ahead:
            # The deadline comes from the same machine, and its clock.
            request.deadline_time_in_ms = int(request.deadline_time_in_ms) + round(ahead * 1000)
        return request

    base.wait_next_invocation = wait_next_invocation


def _wrap_aws(worker: Worker) -> None:
    from botocore.exceptions import EndpointConnectionError

    def broken() -> BaseException:
        return EndpointConnectionError(endpoint_url="(injected fault)")

    def around(service: str, operation: str, parameters: dict[str, Any], make: Callable[[], Any]) -> Any:
        place, write = call_names.aws_call(service, operation, parameters)
        if operation.startswith("SendMessage"):
            worker.record_sent(parameters.get("Entries") or [parameters])
        rule = worker.next_fault(place, write=write)
        if rule is not None and rule.kind == "lose" and "Entries" in parameters:
            taken = [{"Id": entry["Id"], "MessageId": "lost"} for entry in parameters["Entries"]]
            return {"Successful": taken, "Failed": []}
        with effects.around(rule, broken):
            return make()

    wrap_clients(around)


def _wrap_psycopg(worker: Worker) -> None:
    import psycopg
    from psycopg.transaction import BaseTransaction

    execute: Callable[..., Any] = psycopg.Cursor.execute
    copy: Callable[..., Any] = psycopg.Cursor.copy
    commit: Callable[..., Any] = BaseTransaction._commit_gen

    def next_fault(connection: Any, statement: Any) -> Rule | None:
        place, write = call_names.sql_call(statement if isinstance(statement, str | bytes) else "")
        if write:
            setattr(connection, _WROTE, True)
        return worker.next_fault(place, write=write)

    def cursor_execute(self: Any, query: Any, *arguments: Any, **named: Any) -> Any:
        with effects.around(next_fault(self.connection, query), lambda: _cut(self.connection)):
            return execute(self, query, *arguments, **named)

    @contextmanager
    def cursor_copy(self: Any, statement: Any, *arguments: Any, **named: Any) -> Iterator[Any]:
        rule = next_fault(self.connection, statement)
        with (
            effects.around(rule, lambda: _cut(self.connection)),
            copy(self, statement, *arguments, **named) as sink,
        ):
            yield sink

    def commit_gen(self: Any) -> Any:
        # A read-only transaction has nothing to lose.
        wrote = self._outer_transaction and self._conn.__dict__.pop(_WROTE, False)
        rule = worker.next_fault("postgres.commit") if wrote else None
        effects.before(rule, lambda: _cut(self._conn))
        yield from commit(self)
        effects.after(rule, lambda: _cut(self._conn))

    wrapped: dict[str, Any] = {"execute": cursor_execute, "copy": cursor_copy}
    for name, function in wrapped.items():
        setattr(psycopg.Cursor, name, function)
    setattr(BaseTransaction, "_commit_gen", commit_gen)  # noqa: B010 - a private name to the type checker


def _cut(connection: Any) -> BaseException:
    """Close the connection underneath, and return the error that psycopg raises then."""
    import psycopg

    connection.pgconn.finish()
    return psycopg.OperationalError("consuming input failed: (injected fault)")


def _wrap_http(worker: Worker, httpx: Any) -> None:
    """Wrap httpx, or `openai`'s own module: they differ only in name."""
    send: Callable[..., Any] = httpx.Client.send
    send_async: Callable[..., Any] = httpx.AsyncHTTPTransport.handle_async_request

    def next_fault(request: Any) -> tuple[Rule | None, effects.Break]:
        place, write = call_names.http_call(request.method, str(request.url))
        rule = worker.next_fault(place, write=write)
        kind = httpx.ConnectError if rule is not None and rule.kind == "error" else httpx.ReadError
        return rule, lambda: kind("(injected fault)", request=request)

    def client_send(self: Any, request: Any, **named: Any) -> Any:
        rule, broken = next_fault(request)
        with effects.around(rule, broken):
            return send(self, request, **named)

    async def handle_async_request(self: Any, request: Any) -> Any:
        rule, broken = next_fault(request)
        await effects.before_async(rule, broken)
        response = await send_async(self, request)
        effects.after(rule, broken)
        return response

    httpx.Client.send = client_send
    httpx.AsyncHTTPTransport.handle_async_request = handle_async_request
