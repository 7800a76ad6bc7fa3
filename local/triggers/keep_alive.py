"""HTTP/1.1 POSTs to one loopback server over persistent connections, with microseconds of overhead.

No TLS, no redirects, no chunked responses: AWS emulators send a Content-Length.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

CLOSE_LIMIT_S = 0.5
"""How long a cancelled request waits for the server to close its side too."""


class Disconnected(ConnectionError):
    """Raised when the server closed the connection before its response was complete."""


@dataclass(slots=True)
class _Head:
    status: int
    length: int
    keep: bool


def _parse_head(data: bytes) -> _Head:
    """Return the status line and the two headers that matter; ValueError for anything else than HTTP/1.x."""
    lines = data.split(b"\r\n")
    version, status, *_ = lines[0].split(b" ", 2)
    if not version.startswith(b"HTTP/1."):
        raise ValueError("not an HTTP answer")
    head = _Head(int(status), 0, True)
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        if name == b"content-length":
            head.length = int(value)
        elif name == b"connection":
            head.keep = value.strip().lower() != b"close"
        elif name == b"transfer-encoding":
            raise ValueError("chunked answers are not supported")
    return head


class _Connection(asyncio.Protocol):
    """One connection with at most one request in flight."""

    _transport: asyncio.Transport

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._head: _Head | None = None
        self._body_at = 0
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self.usable = False
        self.used = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.usable = True

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        try:
            self._take_answer()
        except ValueError as error:
            self._end(ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(Disconnected(str(exc or "closed by the server")))

    async def post(self, request: bytes) -> tuple[int, bytes]:
        """Send one request and return status and body of its response.

        A cancelled call ends the connection. A response that has already been sent is returned
        all the same: it may contain received messages, which would be lost until their visibility timeout.
        """
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        try:
            result = await answer
        except asyncio.CancelledError:
            if (late := await self._read_rest(answer)) is not None:
                return late
            raise
        self.used = True
        return result

    def close(self) -> None:
        self.usable = False
        self._transport.abort()

    async def _read_rest(self, answer: asyncio.Future[tuple[int, bytes]]) -> tuple[int, bytes] | None:
        """Close our side of the connection and return the rest of the response, if any."""
        self.usable = False
        if answer.cancelled():
            self._answer = answer = asyncio.get_running_loop().create_future()
            if not self._transport.is_closing():
                self._transport.write_eof()
        try:
            async with asyncio.timeout(CLOSE_LIMIT_S):
                return await answer
        except (ConnectionError, TimeoutError):
            return None
        finally:
            self.close()

    def _take_answer(self) -> None:
        if self._head is None:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            self._head = _parse_head(bytes(self._buffer[:end]))
            self._body_at = end + 4
        head = self._head
        if len(self._buffer) < self._body_at + head.length:
            return
        body = bytes(self._buffer[self._body_at : self._body_at + head.length])
        self._buffer.clear()
        self._head = None
        if not head.keep:
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((head.status, body))

    def _end(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


class KeepAliveClient:
    """Pool of connections to the server at `endpoint` (`http://host:port`), as many as needed."""

    def __init__(self, endpoint: str, *, connect_limit_s: float = 5.0) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"not a plain http endpoint: {endpoint}")
        self._host, self._port = parts.hostname, parts.port or 80
        self._connect_limit_s = connect_limit_s
        self._idle: list[_Connection] = []
        self.netloc = parts.netloc

    async def post(self, request: bytes) -> tuple[int, bytes]:
        """Send a whole request (head and body) and return (status, body). Raises ConnectionError.

        An idle connection that the server has closed meanwhile is replaced silently.
        """
        while True:
            connection = await self._connection()
            try:
                answer = await connection.post(request)
            except Disconnected:
                if connection.used:
                    continue
                raise
            if connection.usable:
                self._idle.append(connection)
            return answer

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._connect_limit_s):
                _, connection = await loop.create_connection(_Connection, self._host, self._port)
                return connection
        raise ConnectionError(f"no answer from {self.netloc}")
