"""Fetcher over httpx: a name is resolved once and that checked address is used; bounded in time and size."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpcore
import httpx

from indexmill.contracts.errors import (
    ErrorCode,
    IndexmillError,
    PermanentError,
    TransientError,
    failure,
    http_code,
)
from indexmill.platform.security.addresses import is_public
from indexmill.platform.security.urls import AllowedHosts
from indexmill.platform.time import Clock, SystemClock
from indexmill.scraper.adapters.body import Body
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
_LONGEST_PAUSE_S: Final = 31 * 86_400
_ACCEPT: Final = (
    "text/html,application/xhtml+xml,text/markdown,text/plain;q=0.9,application/pdf;q=0.8,*/*;q=0.1"
)
_CONNECTIONS: Final = 20
_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_STATUS_MESSAGE: Final = {
    206: "Domain returned 206 — a part of the page that was not asked for",
    401: "Domain returned 401 — the page needs a login",
    403: "Domain returned 403 — likely blocked or robots.txt restricted",
    404: "Domain returned 404 — the page does not exist",
    410: "Domain returned 410 — the page is gone",
    429: "Domain returned 429 — too many requests",
}
_LOCATION: Final = "location"
"""Extension of a response: its header of this name."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Limits of one page."""

    max_bytes: int = 10 * 1024 * 1024
    connect_s: float = 5.0
    read_s: float = 10.0
    name_pause_s: float = 2.0
    """Pause before a name that does not exist is looked up again."""


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
        self._user_agent = user_agent
        self._allowed = allowed_hosts
        self._limits = limits or FetchLimits()
        self._clock = clock or SystemClock()
        self._backend = backend or PinnedBackend(allowed_hosts)
        self._ssl = ssl_context
        self._client: httpx.AsyncClient | None = None
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
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

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
        extensions = {} if on_send is None else {"trace": _traced(on_send)}
        request = self._current_client().build_request("GET", url, headers=conditions, extensions=extensions)
        try:
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
                location = response.extensions.get(_LOCATION)
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
        client = self._current_client()
        try:
            return await client.send(request, stream=True)
        except NameNotFound:
            # One resolver among several may not know a new name yet.
            await asyncio.sleep(self._limits.name_pause_s)
            return await client.send(request, stream=True)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # A kept connection may have been closed by the site just now: asking again tells.
            if again is not None:
                await again(str(request.url))
            return await client.send(request, stream=True)

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
        media_type, charset = _media_type(headers.get("content-type", ""))
        return Fetched(
            final_url=url,
            status=response.status_code,
            content_type=media_type,
            charset=charset,
            body=body.done(),
            retry_after=pause,
            validators=validators_of(url, response.headers),
            robots_tags=_robots_tags(headers),
            refresh=headers.get("refresh"),
        )

    def _current_client(self) -> httpx.AsyncClient:
        """Return this loop's client: connections belong to the loop that opened them."""
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:
            context = self._ssl or httpx.create_ssl_context(trust_env=False)
            self._ssl = context
            self._loop = loop
            limits = self._limits
            self._client = httpx.AsyncClient(
                transport=PinnedTransport(self._backend, connections=_CONNECTIONS, verify=context),
                trust_env=False,
                follow_redirects=False,
                timeout=httpx.Timeout(limits.read_s, connect=limits.connect_s, pool=None),
                headers={"User-Agent": self._user_agent, "Accept": _ACCEPT, "Accept-Encoding": "gzip"},
                event_hooks={"response": [_keep_location]},
                # One job's cookies are not the next one's.
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            )
        return self._client


async def _keep_location(response: httpx.Response) -> None:
    """Take the target of a redirect out of the headers: httpx parses it, and fails where it is no URL."""
    location = response.headers.pop("location", None)
    if location is not None:
        response.extensions[_LOCATION] = location


def _traced(on_send: OnSend) -> Callable[[str, Mapping[str, Any]], Awaitable[None]]:
    """Return the callback of httpcore for the steps of a request."""

    async def trace(name: str, _info: Mapping[str, Any]) -> None:
        if name == "http11.send_request_headers.started":
            await on_send()

    return trace


def retry_after(headers: Mapping[str, str], clock: Clock) -> int | None:
    """Return the seconds a Retry-After header asks for, as a number or a date; None without one."""
    text = headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]), _LONGEST_PAUSE_S)
    try:
        at = parsedate_to_datetime(text)
        seconds = (at - clock.now()).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0, min(round(seconds), _LONGEST_PAUSE_S))


def status_failure(status: int, retry_after: int | None = None) -> IndexmillError:
    """Return the error for a site that answered `status`, which is not a success."""
    kind = TransientError if status in _TRANSIENT_STATUS or status >= 500 else PermanentError
    message = _STATUS_MESSAGE.get(status, f"Domain returned {status}")
    return kind(http_code(status), message, retry_after=retry_after)


def _media_type(header: str) -> tuple[str, str | None]:
    """Return type and charset of a Content-Type header."""
    media_type, *parameters = header[:256].split(";")
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset" and value.strip():
            return media_type.strip().lower(), value.strip().strip("\"'")
    return media_type.strip().lower(), None


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
    """httpx's transport over a pool whose connections `backend` opens; Host and SNI stay the URL's."""

    def __init__(self, backend: PinnedBackend, *, connections: int, verify: Any) -> None:
        """`verify` is an SSL context."""
        super().__init__(verify=verify, trust_env=False)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=verify,
            max_connections=connections,
            max_keepalive_connections=connections,
            keepalive_expiry=15.0,
            network_backend=backend,
        )


_ETAG: Final = re.compile(r'(W/)?"[\x21\x23-\x7e]{0,250}"')
_DATE: Final = re.compile(r"[A-Za-z0-9,: +-]{1,64}")


def validators_of(url: str, headers: Mapping[str, str]) -> Validators:
    """Return an answer's validators; a malformed one counts as none, since it is sent back to the site."""
    etag, date = headers.get("etag", "").strip(), headers.get("last-modified", "").strip()
    return Validators(etag if _ETAG.fullmatch(etag) else None, date if _DATE.fullmatch(date) else None, url)


def conditions_of(known: Validators) -> dict[str, str]:
    """Return the headers of a conditional request; a site that reads both goes by the ETag (RFC 9110)."""
    given = {"If-None-Match": known.etag, "If-Modified-Since": known.last_modified}
    return {name: value for name, value in given.items() if value}
