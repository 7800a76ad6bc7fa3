"""HTTP proxy on this machine, for a browser: it connects to vetted public addresses and to nothing else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit

import h11
import httpcore

from indexmill.contracts.errors import CallerError, ErrorCode, PermanentError, TransientError
from indexmill.platform.security.urls import AllowedHosts, canonical_url
from indexmill.scraper.adapters.http_fetcher import PinnedBackend

_PIECE: Final = 65_536
_HEAD_S: Final = 20.0
"""Longest wait for the head of a request."""
_CONNECT_S: Final = 5.0
_SILENCE_S: Final = 60.0
"""Longest silence of either side; the page has its own limit of time."""
_HOP_BY_HOP: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"proxy-authenticate", b"te")
)
_NETWORK_ERRORS: Final = (
    OSError,
    TimeoutError,
    httpcore.NetworkError,
    httpcore.TimeoutException,
    h11.ProtocolError,
    asyncio.IncompleteReadError,
)


@dataclass(frozen=True, slots=True)
class ProxyLimits:
    """Limits of one page."""

    connections: int
    bytes: int
    """Of both directions together."""


class GuardedProxy:
    """Listens on a free port of 127.0.0.1 within an `async with`. One connection has one request or tunnel.

    A name is resolved once for each connection, by the same backend as the fetcher's, and that checked
    address is used.
    """

    def __init__(
        self,
        backend: PinnedBackend,
        *,
        allowed_hosts: AllowedHosts,
        limits: ProxyLimits,
        on_excess: Callable[[str], None],
    ) -> None:
        """`on_excess` is called with what was too much; that connection, and all later ones, are closed."""
        self._backend = backend
        self._allowed = allowed_hosts
        self._limits = limits
        self._on_excess = on_excess
        self._connections = 0
        self._bytes = 0
        self._excessive = False
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> GuardedProxy:
        """Start to listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.ensure_future(self._serve_one(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self._connections += 1
            if self._connections > self._limits.connections:
                self._exceed("requests")
            if not self._excessive:
                await self._serve(_Browser(reader, writer))
        except _NETWORK_ERRORS:
            pass
        finally:
            writer.close()

    async def _serve(self, browser: _Browser) -> None:
        async with asyncio.timeout(_HEAD_S):
            request = await browser.next_event()
        if not isinstance(request, h11.Request):
            return
        try:
            site = await self._dial(request)
        except (CallerError, PermanentError):
            await browser.refuse(403)
            return
        except (TransientError, *_NETWORK_ERRORS):
            await browser.refuse(502)
            return
        try:
            if request.method == b"CONNECT":
                await self._tunnel(browser, site)
            else:
                await self._relay(request, browser, site)
        finally:
            await site.aclose()

    async def _dial(self, request: h11.Request) -> httpcore.AsyncNetworkStream:
        """Connect to where `request` wants to.

        Raises CallerError and what the backend raises.
        """
        target = request.target.decode("ascii")
        host, port = vetted_origin(
            f"https://{target}" if request.method == b"CONNECT" else target, self._allowed
        )
        return await self._backend.connect_tcp(host, port, _CONNECT_S)

    async def _tunnel(self, browser: _Browser, site: httpcore.AsyncNetworkStream) -> None:
        await browser.send(h11.Response(status_code=200, headers=[]))
        early = browser.early()

        async def up() -> None:
            data = early or await browser.read()
            while data:
                await self._write(site, data)
                data = await browser.read()

        async def down() -> None:
            while data := await self._read(site):
                await browser.write(data)

        ways = [asyncio.create_task(up()), asyncio.create_task(down())]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        for way in done:
            way.result()

    async def _relay(
        self, request: h11.Request, browser: _Browser, site: httpcore.AsyncNetworkStream
    ) -> None:
        """Pass on one request and its answer; then the connection ends, and with it what follows."""
        wire = h11.Connection(h11.CLIENT)
        parts = urlsplit(request.target.decode("ascii"))
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        sent = h11.Request(method=request.method, target=path, headers=_end_to_end(request.headers))
        await self._write(site, wire.send(sent) or b"")
        while not isinstance(event := await browser.next_event(), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                return
            await self._write(site, wire.send(event) or b"")
        await self._write(site, wire.send(event) or b"")
        while True:
            answer = wire.next_event()
            if answer is h11.NEED_DATA:
                wire.receive_data(await self._read(site))
            elif isinstance(answer, h11.Response):
                headers = _end_to_end(answer.headers)
                await browser.send(
                    h11.Response(status_code=answer.status_code, headers=headers, reason=answer.reason)
                )
            elif isinstance(answer, h11.Data):
                await browser.send(answer)
            elif isinstance(answer, h11.EndOfMessage):
                await browser.send(answer)
                return
            elif not isinstance(answer, h11.InformationalResponse):
                return

    async def _read(self, site: httpcore.AsyncNetworkStream) -> bytes:
        data = await site.read(_PIECE, _SILENCE_S)
        self._count(len(data))
        return data

    async def _write(self, site: httpcore.AsyncNetworkStream, data: bytes) -> None:
        self._count(len(data))
        await site.write(data, _SILENCE_S)

    def _count(self, size: int) -> None:
        """Count bytes. Raises ConnectionError when they, or the requests, are too many."""
        self._bytes += size
        if self._bytes > self._limits.bytes:
            self._exceed("bytes")
        if self._excessive:
            raise ConnectionError

    def _exceed(self, what: str) -> None:
        if not self._excessive:
            self._excessive = True
            self._on_excess(what)


def vetted_origin(url: str, allowed_hosts: AllowedHosts) -> tuple[str, int]:
    """Return host and port of `url`, judged as in a URL that is fetched. Raises CallerError."""
    # Paths and queries are the page's own.
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise CallerError(ErrorCode.URL_INVALID, "The host of the URL is not valid.") from error
    found = urlsplit(canonical_url(f"{parts.scheme}://{parts.netloc}/", allowed_hosts=allowed_hosts))
    return found.hostname or "", found.port or {"http": 80, "https": 443}[found.scheme]


class _Browser:
    """The browser's side of a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._wire = h11.Connection(h11.SERVER)

    async def next_event(self) -> object:
        while (event := self._wire.next_event()) is h11.NEED_DATA:
            self._wire.receive_data(await self._reader.read(_PIECE))
        return event

    async def send(self, event: h11.Event) -> None:
        await self.write(self._wire.send(event) or b"")

    async def refuse(self, status: int) -> None:
        headers = [("Content-Length", "0"), ("Connection", "close")]
        with contextlib.suppress(h11.LocalProtocolError):
            await self.send(h11.Response(status_code=status, headers=headers))

    def early(self) -> bytes:
        """Return what was sent after the head of a CONNECT."""
        return self._wire.trailing_data[0]

    async def read(self) -> bytes:
        return await self._reader.read(_PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not of one connection alone, and the one that ends it."""
    named = {
        name.strip().lower() for key, value in headers if key == b"connection" for name in value.split(b",")
    }
    kept = [(key, value) for key, value in headers if key not in _HOP_BY_HOP and key not in named]
    return [*kept, (b"connection", b"close")]
