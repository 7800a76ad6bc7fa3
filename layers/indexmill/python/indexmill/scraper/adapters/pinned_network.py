"""Connections to checked addresses: a name is resolved once, and that address is used."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import httpcore
import httpx

from indexmill.contracts.errors import ErrorCode
from indexmill.platform.security.addresses import is_public
from indexmill.platform.security.urls import AllowedHosts
from indexmill.scraper.classify import failure

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

        Raises PermanentError(url_host_not_allowed) before anything is dialled, TransientError(dns_error), and
        httpcore's own errors.
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
