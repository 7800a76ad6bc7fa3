"""Server of MiniStack's ASGI application; run by the interpreter of MiniStack's own environment.

Usage: `python -I ministack_server.py READY_FILE PORT`, with MiniStack's settings in the environment.

It differs from the `ministack` command: an HTTP server at half the CPU per request, a port that the system
chooses, waiting receives that are answered at once when a message arrives (MiniStack itself polls every 100
ms), deletes that succeed for messages that are gone, as on AWS, the age of each queue's oldest message, and
counts of all requests, by operation (`COUNTS_PATH`).
SIGUSR1 makes it write its state, which it otherwise does only at exit. It stops when its standard input
closes, thus with its parent.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import json
import os
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from types import ModuleType
from typing import Any

Handler = Callable[[dict[str, Any], str], Any]
Receive = Callable[[], Awaitable[Any]]

POLL_S = 1.0
"""Polling interval of a waiting receive: messages that other services put into a queue do not wake it."""
AGE_ATTRIBUTE = "Local.AgeOfOldestMessage"
"""Seconds. SQS itself has no such attribute, only CloudWatch a metric."""
POISON_RECEIVES = 3
COUNTS_PATH = "/_local/requests"
UNIT_BYTES = 64 * 1024
"""SQS bills a request once for each started 64 KiB of its messages."""
_RECEIPT = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_client: contextvars.ContextVar[Receive | None] = contextvars.ContextVar("client", default=None)


class WaitingReceives:
    """ReceiveMessage with a wait that ends when a message becomes visible or the client hangs up."""

    def __init__(self, sqs: ModuleType) -> None:
        self._queue = sqs._get_q
        self._receive: Handler = sqs._HANDLERS["ReceiveMessage"]
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}

    def notifying(self, handler: Handler) -> Handler:
        """Wrap `handler`, which makes messages visible, to wake the receives that wait on its queue."""

        def handle(data: dict[str, Any], url: str) -> Any:
            result = handler(data, url)
            self.wake(self._queue(data.get("QueueUrl", url)))
            return result

        return handle

    def wake(self, queue: dict[str, Any]) -> None:
        """Let the receives that wait on the queue look again."""
        for waiter in self._waiting.get(id(queue), ()):
            if not waiter.done():
                waiter.set_result(None)

    async def receive(self, data: dict[str, Any], url: str) -> Any:
        """Answer as soon as there is a message; empty after the wait or when the client hung up."""
        queue = self._queue(data.get("QueueUrl", url))
        wait = data.get("WaitTimeSeconds")
        if wait is None:
            wait = queue["attributes"].get("ReceiveMessageWaitTimeSeconds", "0")
        deadline = time.time() + int(wait)
        at_once = {**data, "WaitTimeSeconds": 0}
        while True:
            now = time.time()
            # A cheap check first: the real receive touches every message of the queue.
            next_visible = min((m["visible_at"] for m in queue["messages"]), default=deadline)
            if next_visible <= now or now >= deadline:
                result = await self._receive(at_once, url)
                if result or now >= deadline:
                    return result
            # A visible message that is not returned waits for others of its group.
            poll = next_visible - now if next_visible > now else POLL_S
            if not await self._wait_for_message(queue, min(poll, deadline - now, POLL_S)):
                return {}

    async def _wait_for_message(self, queue: dict[str, Any], seconds: float) -> bool:
        """Wait for a wake-up or `seconds`; False when the client hung up."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiters = self._waiting.setdefault(id(queue), set())
        waiters.add(waiter)
        client = _client.get()
        ends: set[asyncio.Future[Any]] = {waiter}
        disconnected = asyncio.ensure_future(client()) if client else None
        if disconnected:
            ends.add(disconnected)
        try:
            await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            return disconnected is None or not disconnected.done()
        finally:
            waiters.discard(waiter)
            if not waiters:
                self._waiting.pop(id(queue), None)
            if disconnected:
                disconnected.cancel()


def _tolerant_delete(delete: Handler) -> Handler:
    """Wrap DeleteMessageBatch: as on AWS, it succeeds for messages that are gone or were received again."""

    def handle(data: dict[str, Any], url: str) -> Any:
        result = delete(data, url)
        handles = {e.get("Id"): str(e.get("ReceiptHandle", "")) for e in data.get("Entries", ())}
        known = [f for f in result["Failed"] if _RECEIPT.fullmatch(handles.get(f["Id"], ""))]
        result["Successful"] += [{"Id": f["Id"]} for f in known]
        result["Failed"] = [f for f in result["Failed"] if f not in known]
        return result

    return handle


class MessageAges:
    """Age of the oldest message of each queue, as CloudWatch's ApproximateAgeOfOldestMessage counts it.

    A message that was received three times or more goes to the back of a standard queue and does not count;
    in a dead-letter queue age and receives start from zero.
    """

    def __init__(self, sqs: ModuleType, moved_to: Callable[[dict[str, Any]], None]) -> None:
        self._queue, self._queue_by_arn = sqs._get_q, sqs._queue_by_arn
        self._sweep = sqs._dlq_sweep
        self._moved_to = moved_to

    def sweep(self, queue: dict[str, Any]) -> None:
        """Move messages that were received too often to the dead-letter queue, and record when."""
        before = len(queue["messages"])
        self._sweep(queue)
        if len(queue["messages"]) < before:
            policy = json.loads(queue["attributes"]["RedrivePolicy"])
            dead = self._queue_by_arn(policy["deadLetterTargetArn"])
            for message in dead["messages"]:
                if message["sys"].get("DeadLetterQueueSourceArn"):
                    message.setdefault("moved", [time.time(), message["receive_count"]])
            self._moved_to(dead)

    def with_age(self, handler: Handler) -> Handler:
        """Wrap GetQueueAttributes with one more attribute, returned only when it is asked for by name."""

        def handle(data: dict[str, Any], url: str) -> Any:
            result = handler(data, url)
            if AGE_ATTRIBUTE in data.get("AttributeNames", ()):
                age = self._age(self._queue(data.get("QueueUrl", url)))
                result["Attributes"][AGE_ATTRIBUTE] = f"{age:.3f}"
            return result

        return handle

    @staticmethod
    def _age(queue: dict[str, Any]) -> float:
        """Return the age in seconds; 0 when there is no message."""
        now = oldest = time.time()
        for message in queue["messages"]:
            since, received = message.get("moved", (message["sent_at"], 0))
            if queue["is_fifo"] or message["receive_count"] - received < POISON_RECEIVES:
                oldest = min(oldest, since)
        return now - oldest


def _install_wrappers(sqs: ModuleType) -> bool:
    """Install the wrappers. Return False, with nothing changed, when this MiniStack is built differently."""
    handlers = getattr(sqs, "_HANDLERS", {})
    senders = ("SendMessage", "SendMessageBatch", "ChangeMessageVisibility", "ChangeMessageVisibilityBatch")
    needed = (*senders, "ReceiveMessage", "DeleteMessageBatch", "GetQueueAttributes")
    parts = ("_ensure_msg_fields", "_get_q", "_queue_by_arn", "_dlq_sweep")
    if any(name not in handlers for name in needed) or any(not hasattr(sqs, name) for name in parts):
        return False
    complete = sqs._ensure_msg_fields
    prompt = WaitingReceives(sqs)
    for name in senders:
        handlers[name] = prompt.notifying(handlers[name])
    handlers["ReceiveMessage"] = prompt.receive
    handlers["DeleteMessageBatch"] = _tolerant_delete(handlers["DeleteMessageBatch"])
    ages = MessageAges(sqs, prompt.wake)
    handlers["GetQueueAttributes"] = ages.with_age(handlers["GetQueueAttributes"])
    sqs._dlq_sweep = ages.sweep  # type: ignore[attr-defined]

    def complete_once(message: dict[str, Any]) -> None:
        # "seq" is the last field to be filled in; without this check, a receive costs 14 writes per message.
        if "seq" not in message:
            complete(message)

    sqs._ensure_msg_fields = complete_once  # type: ignore[attr-defined]
    return True


class SqsRoute:
    """Route of the SQS calls that every message needs straight to MiniStack's SQS.

    MiniStack tries the routes of all its services first, at twice the cost of such a call. The rest, and what
    is no call in the JSON protocol, is passed on to `application`.
    """

    _TARGETS = frozenset(
        b"AmazonSQS." + name
        for name in (
            b"SendMessageBatch",
            b"ReceiveMessage",
            b"DeleteMessageBatch",
            b"ChangeMessageVisibilityBatch",
        )
    )

    def __init__(self, application: Any, sqs: ModuleType) -> None:
        self._application = application
        self._handle_request = sqs.handle_request
        self._core = importlib.import_module("ministack.core.responses")
        self._router = importlib.import_module("ministack.core.router")

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http" or dict(scope["headers"]).get(b"x-amz-target") not in self._TARGETS:
            await self._application(scope, receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            if part["type"] == "http.disconnect":
                return
            body += part.get("body", b"")
            more = part.get("more_body", False)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        self._core.set_request_account_id(self._router.extract_access_key_id(headers))
        self._core.set_request_region(self._router.extract_region(headers))
        status, fields, answer = await self._handle_request(scope["method"], scope["path"], headers, body, {})
        fields |= {"Content-Length": str(len(answer)), "x-amzn-requestid": str(uuid.uuid4())}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": encoded})
        await send({"type": "http.response.body", "body": answer})


class RequestCounts:
    """Counts requests by service and operation, such as `sqs:ReceiveMessage`, and answers `COUNTS_PATH`.

    The answer is JSON, by operation: requests; of them those without a body in their answer that is worth
    mentioning (`empty`: receives without a message); and 64 KiB units of the larger of both bodies (`units`).
    """

    _NOTHING_BYTES = 20
    """An answer of a receive without a message is `{}` or `{"Messages": []}`."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._counts: dict[str, dict[str, int]] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Any) -> None:
        """Serve one ASGI connection."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        if scope["path"] == COUNTS_PATH:
            body = json.dumps(self._counts).encode()
            headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": body})
            return
        answered = 0

        async def measured(event: dict[str, Any]) -> None:
            nonlocal answered
            answered += len(event.get("body", b""))
            await send(event)

        await self._application(scope, receive, measured)
        fields = dict(scope["headers"])
        sent = int(fields.get(b"content-length") or 0)
        operation = self._operation(scope["method"], fields)
        count = self._counts.setdefault(operation, {"requests": 0, "empty": 0, "units": 0})
        count["requests"] += 1
        count["empty"] += answered <= self._NOTHING_BYTES
        count["units"] += max(1, -(-max(sent, answered) // UNIT_BYTES))

    @staticmethod
    def _operation(method: str, fields: dict[bytes, bytes]) -> str:
        # AWS4-HMAC-SHA256 Credential=KEY/DATE/REGION/SERVICE/aws4_request, ...
        scope = fields.get(b"authorization", b"").partition(b"Credential=")[2].split(b"/")[:5]
        service = scope[3].decode("latin-1") if len(scope) == 5 else "other"
        target = fields.get(b"x-amz-target")
        return f"{service}:{target.decode('latin-1').rpartition('.')[2] if target else method}"


class JoinedWrites:
    """Transport that sends in one segment what is written in one go.

    uvicorn writes head and body of an answer apart, and a client that waits wakes up for each.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Send `data` before the event loop waits again."""
        if not self._written:
            asyncio.get_running_loop().call_soon(self._flush)
        self._written.append(data)

    def close(self) -> None:
        """Close the connection when everything is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._written:
            self._transport.write(b"".join(self._written))
            self._written.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _save_state() -> None:
    """Write what MiniStack writes at exit; nothing when it is built differently, or keeps no state."""
    module = importlib.import_module("ministack.app")
    save, services = getattr(module, "save_all", None), getattr(module, "_build_persistence_save_dict", None)
    if save is not None and services is not None:
        save(services())


def main(ready_file: Path, port: int) -> None:
    """Serve until SIGTERM or the end of standard input; `ready_file` gets port and features when ready."""
    # asyncio switches Nagle's algorithm off only where the protocol is named; it costs 40 ms per answer.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((os.environ.get("BIND_HOST", "127.0.0.1"), port))
    listener.listen(512)
    port = listener.getsockname()[1]
    os.environ["GATEWAY_PORT"] = str(port)  # before the import: MiniStack reads it there
    uvicorn: Any = importlib.import_module("uvicorn")
    http: Any = importlib.import_module("uvicorn.protocols.http.httptools_impl")
    application = importlib.import_module("ministack.app").app
    sqs = importlib.import_module("ministack.services.sqs")
    if prompt := _install_wrappers(sqs):
        application = SqsRoute(application, sqs)
    application = RequestCounts(application)

    async def serve_request(scope: MutableMapping[str, Any], receive: Receive, send: Any) -> None:
        _client.set(receive)
        await application(scope, receive, send)

    class Protocol(http.HttpToolsProtocol):  # type: ignore[misc]
        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(JoinedWrites(transport))

    class Server(uvicorn.Server):  # type: ignore[misc]
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin.fileno(), self._parent_gone)
            loop.add_signal_handler(signal.SIGUSR1, _save_state)
            draft = ready_file.with_suffix(".tmp")
            draft.write_text(json.dumps({"port": port, "prompt_long_polls": prompt}))
            draft.rename(ready_file)

        def _parent_gone(self) -> None:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            self.should_exit = True

    config = uvicorn.Config(
        serve_request,
        loop="asyncio",
        http=Protocol,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=1,
    )
    Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
