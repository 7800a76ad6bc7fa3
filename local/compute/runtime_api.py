"""AWS's Runtime API over a minimal HTTP/1.1 server: one loopback port for each execution environment."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from local.compute.error_documents import MAX_RESPONSE_BYTES

_PREFIX = b"/2018-06-01/runtime/"
_INVOCATION = _PREFIX + b"invocation/"
_REASONS = {
    200: b"OK",
    202: b"Accepted",
    403: b"Forbidden",
    404: b"Not Found",
    413: b"Request Entity Too Large",
}
_MAX_HEAD_BYTES = 2 << 20  # the runtime client sends its X-Ray cause, up to 1 MiB, as a header


class RuntimePort(Protocol):
    """Handlers of one execution environment for the calls of its runtime client.

    Each of the three posts returns False when no such invocation (or initialisation) is open: AWS's 403.
    """

    def connected(self, connection: RuntimeConnection) -> None:
        """Handle a new client."""

    def disconnected(self, connection: RuntimeConnection) -> None:
        """Handle a disconnect; an open `next` on that connection is void."""

    def next(self, connection: RuntimeConnection) -> None:
        """Handle a ready runtime: answer on `connection`, now or later, with `send_event`."""

    def respond(self, request_id: str, body: bytes | None) -> bool:
        """Return the handler returned `body`; None when it was over the limit."""

    def fail(self, request_id: str, body: bytes | None) -> bool:
        """Return the handler raised; `body` is the runtime client's error document."""

    def init_failed(self, body: bytes | None) -> bool:
        """Return the module could not be imported or has no such handler."""


def answer(status: int, body: bytes = b'{"status":"OK"}\n', headers: bytes = b"") -> bytes:
    """Return a complete HTTP response.

    The content type is exactly `application/json`: with a charset the runtime client hands bytes to the
    handler, with none it crashes.
    """
    return b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s" % (
        status,
        _REASONS[status],
        headers,
        len(body),
        body,
    )


def _refusal(status: int, error_type: bytes) -> bytes:
    return answer(status, b'{"errorMessage":"%s","errorType":"%s"}\n' % (_REASONS[status], error_type))


_ACCEPTED = answer(202)
_NOT_OPEN = _refusal(403, b"InvalidStateTransition")
_TOO_LARGE = _refusal(413, b"RequestEntityTooLarge")
_UNKNOWN_PATH = _refusal(404, b"UnknownPath")


def content_length(head: bytes) -> int:
    """Return the declared length of the body; 0 when there is none."""
    lower = head.lower()
    at = lower.find(b"\r\ncontent-length:")
    if at < 0:
        return 0
    end = lower.find(b"\r\n", at + 17)
    return int(lower[at + 17 : end if end >= 0 else None])


class RuntimeConnection(asyncio.Protocol):
    """One connection of a runtime client: requests come one after the other."""

    def __init__(self, port: RuntimePort) -> None:
        self._port = port
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._line = b""
        self._wanted = -1
        self._discarded = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self._port.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Notify the port that the client disconnected."""
        self._transport = None
        self._port.disconnected(self)

    def data_received(self, data: bytes) -> None:
        """Collect one request, drop the body of one that is too large, and handle it when it is complete."""
        self._buffer += data
        while self._transport is not None:
            if self._wanted < 0 and not self._read_head():
                return
            if self._wanted > MAX_RESPONSE_BYTES:
                self._discarded += len(self._buffer)
                self._buffer.clear()
                if self._discarded < self._wanted:
                    return
                body = None
            elif len(self._buffer) < self._wanted:
                return
            else:
                body = bytes(self._buffer[: self._wanted])
                del self._buffer[: self._wanted]
            self._wanted = -1
            self._dispatch(body)

    def send_event(self, headers: bytes, payload: bytes) -> None:
        """Answer the open `next`."""
        self._write(answer(200, payload, headers))

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > _MAX_HEAD_BYTES:
                self.abort()
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + 4]
        self._line = head[: head.find(b"\r\n")] if b"\r\n" in head else head
        self._wanted = content_length(head)
        self._discarded = 0
        return True

    def _dispatch(self, body: bytes | None) -> None:
        method, _, rest = self._line.partition(b" ")
        path = rest.partition(b" ")[0]
        if method == b"GET" and path == _INVOCATION + b"next":
            self._port.next(self)
            return
        if method == b"POST":
            accepted = self._post(path, body)
            if accepted is not None:
                self._write(_NOT_OPEN if not accepted else _ACCEPTED if body is not None else _TOO_LARGE)
                return
        self._write(_UNKNOWN_PATH)

    def _post(self, path: bytes, body: bytes | None) -> bool | None:
        if path == _PREFIX + b"init/error":
            return self._port.init_failed(body)
        if path.startswith(_INVOCATION):
            request_id, _, action = path[len(_INVOCATION) :].decode("latin-1").partition("/")
            if action == "response":
                return self._port.respond(request_id, body)
            if action == "error":
                return self._port.fail(request_id, body)
        return None

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)
