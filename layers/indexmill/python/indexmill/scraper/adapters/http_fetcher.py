"""Fetcher over httpx: a name is resolved once and that checked address is used; bounded in time and size."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import httpcore
import httpx

from indexmill.contracts.errors import (
    ErrorCode,
    IndexmillError,
    PermanentError,
    failure,
)
from indexmill.platform.security.addresses import is_public
from indexmill.platform.security.urls import AllowedHosts
from indexmill.platform.time import Clock, SystemClock
from indexmill.scraper.adapters.answer import (
    Body,
    conditions_of,
    media_type,
    retry_after,
    status_failure,
    validators_of,
)
from indexmill.scraper.links import enter, redirect_target
from indexmill.scraper.ports import (
    MAX_REDIRECTS,
    NOT_MODIFIED,
    BeforeHop,
    Fetched,
    NameNotFound,
    OnSend,
    Validators,
)

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_ACCEPT: Final = (
    "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/pdf;q=0.8,*/*;q=0.1"
)
_CONNECTIONS: Final = 20
"""Kept at most, and for so long."""
_KEPT_S: Final = 15.0


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one page."""

    max_bytes: int = 10 * 1024 * 1024
    connect_s: float = 5.0
    read_s: float = 10.0
    name_pause_s: float = 2.0
    """Pause before a name that does not exist is looked up again."""

    def extensions(self) -> dict[str, Any]:
        """Return the time limits as a request has them."""
        return {"timeout": httpx.Timeout(self.read_s, connect=self.connect_s, pool=None).as_dict()}


class HttpFetcher:
    """Gets pages over HTTP/1.1. Connections are kept between calls, one pool per event loop."""

    def __init__(
        self,
        *,
        user_agent: str,
        allowed_hosts: AllowedHosts = frozenset(),
        limits: FetchLimits | None = None,
        clock: Clock | None = None,
        backend: PinnedBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """`allowed_hosts` may be private, see `canonical_url`; nothing is opened yet."""
        self._allowed = allowed_hosts
        self._limits = limits or FetchLimits()
        self._clock = clock or SystemClock()
        self._backend = backend or PinnedBackend(allowed_hosts)
        self._ssl = ssl_context
        self._headers = {
            "User-Agent": user_agent,
            "Accept": _ACCEPT,
            "Accept-Encoding": "gzip",
            "Connection": "keep-alive",
        }
        self._transport: PinnedTransport | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def fetch(  # noqa: PLR0913 - as the port
        self,
        url: str,
        *,
        deadline: float,
        cut_at: int | None = None,
        before_hop: BeforeHop | None = None,
        known: Validators | None = None,
        redirects: int = MAX_REDIRECTS,
        on_send: OnSend | None = None,
    ) -> Fetched:
        """Return what `url` answers after at most so many redirects, each vetted like `url` itself."""
        try:
            async with asyncio.timeout(max(0.0, deadline - self._clock.monotonic())):
                for left in range(redirects, -1, -1):
                    answer = await self._get(url, cut_at, known, before_hop, on_send)
                    if isinstance(answer, Fetched):
                        return replace(answer, redirects=left)
                    url = answer
                    if left and before_hop is not None:
                        await enter(before_hop, url, left - 1)
                raise failure(ErrorCode.TOO_MANY_REDIRECTS)
        except TimeoutError as error:
            raise failure(ErrorCode.DEADLINE_EXCEEDED) from error

    async def close(self) -> None:
        """Close the connections; the next call opens new ones."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()

    async def _get(
        self,
        url: str,
        cut_at: int | None,
        known: Validators | None,
        again: BeforeHop | None,
        on_send: OnSend | None,
    ) -> Fetched | str:
        """Return the answer, or the canonical URL it redirects to."""
        conditions = conditions_of(known) if known is not None and known.url == url else {}
        extensions = self._limits.extensions() | ({} if on_send is None else {"trace": _traced(on_send)})
        try:
            request = httpx.Request(
                "GET", url, headers={**self._headers, **conditions}, extensions=extensions
            )
            response = await self._send(request, again)
            try:
                if conditions and response.status_code == NOT_MODIFIED:
                    return Fetched(
                        final_url=url,
                        status=NOT_MODIFIED,
                        content_type="",
                        charset=None,
                        body=b"",
                        validators=validators_of(url, response.headers),
                        robots_tags=_robots_tags(response.headers),
                    )
                location = response.headers.get("location")
                if response.status_code in _REDIRECTS and location is not None:
                    return redirect_target(url, location, self._allowed)
                return await self._read(url, response, cut_at)
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise _translated(error) from error
        except httpx.InvalidURL as error:
            raise PermanentError(ErrorCode.URL_INVALID, "The URL cannot be requested") from error

    async def _send(self, request: httpx.Request, again: BeforeHop | None) -> httpx.Response:
        # Without httpx's client, which adds cookies, redirects and authentication: none is wanted here.
        transport = self._current_transport()
        try:
            response = await transport.handle_async_request(request)
        except NameNotFound:
            # One resolver among several may not know a new name yet.
            await asyncio.sleep(self._limits.name_pause_s)
            response = await transport.handle_async_request(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # A kept connection may have been closed by the site just now: asking again tells.
            if again is not None:
                await again(str(request.url))
            response = await transport.handle_async_request(request)
        response.request = request
        return response

    async def _read(self, url: str, response: httpx.Response, cut_at: int | None) -> Fetched:
        limit, truncate = cut_at or self._limits.max_bytes, cut_at is not None
        headers = response.headers
        pause = retry_after(headers, self._clock)
        if not response.is_success or response.status_code == HTTPStatus.PARTIAL_CONTENT:
            raise status_failure(response.status_code, pause)
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise failure(
                ErrorCode.UNSUPPORTED_CONTENT_TYPE, "The page uses a content encoding other than gzip"
            )
        announced = headers.get("content-length", "")
        if not truncate and announced.isascii() and announced.isdigit() and int(announced[:20]) > limit:
            raise failure(ErrorCode.CONTENT_TOO_LARGE)
        body = Body(limit=limit, gzip=encoding in ("gzip", "x-gzip"), truncate=truncate)
        async for piece in response.aiter_raw():
            if not body.feed(piece):
                break
        kind, charset = media_type(headers.get("content-type", ""))
        return Fetched(
            final_url=url,
            status=response.status_code,
            content_type=kind,
            charset=charset,
            body=body.done(),
            retry_after=pause,
            validators=validators_of(url, response.headers),
            robots_tags=_robots_tags(headers),
            refresh=headers.get("refresh"),
        )

    def _current_transport(self) -> PinnedTransport:
        """Return this loop's transport: connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._transport is None or self._loop is not loop:
            self._ssl = self._ssl or httpx.create_ssl_context(trust_env=False)
            self._loop = loop
            self._transport = PinnedTransport(self._backend, verify=self._ssl)
        return self._transport


def _traced(on_send: OnSend) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Return the callback of httpcore for the steps of a request."""

    async def trace(name: str, _info: Mapping[str, Any]) -> None:
        if name == "http11.send_request_headers.started":
            await on_send()

    return trace


def _robots_tags(headers: httpx.Headers) -> tuple[str, ...]:
    return tuple(headers.get_list("x-robots-tag"))


def _translated(error: httpx.HTTPError) -> IndexmillError:
    causes = _chain(error)
    cause: str = ErrorCode.CONNECTION_ERROR
    if any(isinstance(one, ssl.SSLError) for one in causes):
        cause = ErrorCode.TLS_ERROR
    elif any(isinstance(one, ConnectionRefusedError) for one in causes):
        cause = ErrorCode.CONNECTION_REFUSED
    elif isinstance(error, httpx.ConnectTimeout):
        cause = ErrorCode.CONNECTION_TIMEOUT
    elif isinstance(error, httpx.TimeoutException):
        cause = ErrorCode.READ_TIMEOUT
    return failure(cause)


def _chain(error: BaseException) -> list[BaseException]:
    """Return the errors behind `error`, itself first."""
    chain: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(chain) < 10:
        chain.append(current)
        current = current.__cause__ or current.__context__
    return chain


Resolver = Callable[[str, int], Awaitable[list[str]]]
_MAX_ADDRESSES: Final = 3


async def system_resolver(host: str, port: int) -> list[str]:
    """Return every address of `host`, in the system's order of preference. Raises OSError."""
    answers = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Dials vetted addresses only. One private answer among those for a name refuses the name."""

    def __init__(
        self,
        allowed_hosts: AllowedHosts,
        *,
        resolver: Resolver = system_resolver,
        inner: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """`allowed_hosts` may be private; `inner` opens the connections."""
        self._allowed = allowed_hosts
        self._resolver = resolver
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Open a connection to the first vetted address of `host` that answers.

        Raises PermanentError(url_host_not_allowed) before anything is dialled, TransientError(dns_error), of
        which NameNotFound is one, and httpcore's own errors.
        """
        addresses = await self._vetted(host.strip("[]"), port)
        for address in addresses[:-1]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout):
                continue
        return await self._inner.connect_tcp(addresses[-1], port, timeout, local_address, socket_options)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await self._inner.sleep(seconds)

    async def _vetted(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolver(host, port)
        except (OSError, UnicodeError) as error:
            if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
                raise NameNotFound from error
            raise failure(ErrorCode.DNS_ERROR) from error
        if not addresses:
            raise failure(ErrorCode.DNS_ERROR)
        if (host, port) not in self._allowed and not all(is_public(address) for address in addresses):
            raise failure(ErrorCode.URL_HOST_NOT_ALLOWED)
        return addresses[:_MAX_ADDRESSES]


class PinnedTransport(httpx.AsyncHTTPTransport):
    """httpx's transport over connections that `backend` opens; Host and SNI stay the URL's."""

    def __init__(self, backend: PinnedBackend, *, verify: ssl.SSLContext) -> None:
        """Nothing is opened yet."""
        super().__init__(verify=verify, trust_env=False)
        self._pool: Any = _KeptConnections(
            partial(
                httpcore.AsyncHTTPConnection,
                ssl_context=verify,
                keepalive_expiry=_KEPT_S,
                network_backend=backend,
            )
        )


class _KeptConnections:
    """In place of httpcore's pool, which asks every idle connection at each request and answer.

    It does not bound the requests at once: a worker has ten messages.
    """

    def __init__(self, new: Callable[[httpcore.Origin], httpcore.AsyncHTTPConnection]) -> None:
        """A connection is opened by its first request."""
        self._new = new
        self._idle: list[httpcore.AsyncHTTPConnection] = []
        """The one that was used last is the last."""

    async def handle_async_request(self, request: httpcore.Request) -> httpcore.Response:
        """Send the request on a connection of its origin, which is kept when the answer is closed."""
        origin = request.url.origin
        while (kept := self._take(origin)) is not None and kept.has_expired():
            await kept.aclose()
        connection = kept or self._new(origin)
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            await connection.aclose()
            raise
        response.stream = _Answer(response.stream, partial(self._keep, connection))
        return response

    async def aclose(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            await self._idle.pop().aclose()

    def _take(self, origin: httpcore.Origin) -> httpcore.AsyncHTTPConnection | None:
        for connection in reversed(self._idle):
            if connection.can_handle_request(origin):
                self._idle.remove(connection)
                return connection
        return None

    async def _keep(self, connection: httpcore.AsyncHTTPConnection) -> None:
        if connection.is_available():
            self._idle.append(connection)
        if len(self._idle) > _CONNECTIONS:
            await self._idle.pop(0).aclose()


class _Answer:
    """Content of an answer; `closed` is called after it is closed, which httpx does once."""

    def __init__(self, stream: Any, closed: Callable[[], Awaitable[None]]) -> None:
        self._stream, self._closed = stream, closed

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._stream)

    async def aclose(self) -> None:
        await self._stream.aclose()
        await self._closed()
