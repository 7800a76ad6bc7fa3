"""Functions in this process behind a front on a real socket, and raw HTTP where clients would correct it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from local.front.server import RestFront
from local.template.spec import AuthorizerSpec, InvokeResult, RouteSpec

ACCOUNT, REGION, STAGE = "123456789012", "eu-west-1", "v1"
KEY = "a-key-that-nobody-logs"

Handler = Callable[[dict[str, Any]], Any]


def echo(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event itself."""
    return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": json.dumps(event)}


def error_result(message: str, kind: str = "Exception") -> InvokeResult:
    """Return the Lambda host's result for a handler that raised."""
    document = {"errorMessage": message, "errorType": kind, "stackTrace": []}
    return InvokeResult(json.dumps(document).encode(), function_error="Unhandled", request_id="failed")


@dataclass
class Functions:
    """Functions by logical id. A handler's result is sent as JSON; an InvokeResult unchanged."""

    handlers: dict[str, Handler] = field(default_factory=lambda: {"Echo": echo})
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def invoke(self, function: str, payload: bytes) -> InvokeResult:
        handler = self.handlers[function]
        event = json.loads(payload)
        self.events.append((function, event))
        answer = handler(event)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, InvokeResult):
            return answer
        return InvokeResult(json.dumps(answer).encode(), request_id="function-request")

    @property
    def calls(self) -> Counter[str]:
        """Number of calls by function."""
        return Counter(function for function, _ in self.events)

    def last(self, function: str = "Echo") -> dict[str, Any]:
        """Return the last event of `function`."""
        return next(event for name, event in reversed(self.events) if name == function)


@dataclass
class Clock:
    """Clock that only moves when it is set."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Served:
    """A listening front."""

    front: RestFront
    functions: Functions
    client: httpx.AsyncClient

    @property
    def port(self) -> int:
        port = self.client.base_url.port
        assert port is not None
        return port

    async def raw(self, request: bytes, *, deadline_s: float = 5.0) -> Answer:
        """Send bytes unchanged and read until the front closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(deadline_s):
                # A refusal may arrive, and the connection close, while bytes are still being sent.
                with contextlib.suppress(ConnectionError):
                    writer.write(request)
                    await writer.drain()
                return Answer.read(await reader.read())
        finally:
            writer.close()


@dataclass
class Answer:
    """A response as it was on the wire."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @classmethod
    def read(cls, wire: bytes) -> Answer:
        head, _, body = wire.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":")[::2] for line in lines]
        return cls(int(first.split(" ")[1]), [(name.lower(), value.strip()) for name, value in pairs], body)

    def json(self) -> Any:
        return json.loads(self.body)


ServeFront = Callable[..., Awaitable[Served]]


def route(method: str, path: str, function: str = "Echo", **rest: Any) -> RouteSpec:
    return RouteSpec(method, path, function, **rest)


def request_bytes(
    target: str, *headers: str, method: str = "GET", body: bytes = b"", host: str = "api.example.test"
) -> bytes:
    """Return a request with `Connection: close`."""
    lines = [f"{method} {target} HTTP/1.1", f"Host: {host}", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def key_authorizer(ttl_s: int = 300, *headers: str) -> AuthorizerSpec:
    return AuthorizerSpec("Key", "Authorize", headers or ("X-API-Key",), ttl_s)


def policy(
    effect: str = "Allow",
    resource: str | list[str] = "*",
    *,
    context: object = None,
    principal: object = "someone",
    **statement: Any,
) -> dict[str, Any]:
    """Return an authorizer's response."""
    one: Mapping[str, Any] = {
        "Action": "execute-api:Invoke",
        "Effect": effect,
        "Resource": resource,
        **statement,
    }
    document = {"Version": "2012-10-17", "Statement": [one]}
    answer: dict[str, Any] = {"principalId": principal, "policyDocument": document}
    return answer if context is None else {**answer, "context": context}
