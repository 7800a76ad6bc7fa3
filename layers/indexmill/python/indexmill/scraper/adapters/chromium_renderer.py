"""Renderer that drives a Chromium: one of this machine behind a proxy of ours, or a service's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import httpx

from indexmill.contracts.errors import ErrorCode, failure
from indexmill.platform.aws.secrets import Secret
from indexmill.platform.security.urls import AllowedHosts
from indexmill.platform.time import Clock
from indexmill.scraper.adapters import cdp
from indexmill.scraper.adapters.chromium_page import ChromiumPage, PageLimits, Stop, opened_tab
from indexmill.scraper.adapters.chromium_process import StartError, launched
from indexmill.scraper.adapters.guarded_proxy import GuardedProxy, ProxyLimits
from indexmill.scraper.adapters.http_fetcher import PinnedBackend
from indexmill.scraper.ports import Fetched

LOCAL: Final = "chromium:"
"""Scheme of a renderer that is a program of this machine: its path follows."""
_MESSAGE_BYTES: Final = 1 << 20
"""Of a message of the browser, beside the document."""
_ESCAPED: Final = 6
"""Bytes of a character in JSON, at most."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Limits of one page."""

    document_bytes: int = 10 * 1024 * 1024
    start_s: float = 10.0
    """For the browser's start, or the connection to a service."""
    page_s: float = 15.0
    settle_s: float = 10.0
    """Of these, how long a page that does not become quiet is waited for."""
    leave_s: float = 1.0
    """Beside these, for the end of a page in a service's browser."""
    requests: int = 300
    """Beside the page itself. Pictures, media and fonts count and are not loaded."""
    transfer_bytes: int = 50 * 1024 * 1024
    memory_bytes: int = 1024 * 1024 * 1024
    """Of all processes of a local browser."""


class ChromiumRenderer:
    """A browser, or a context of the service's browser, for each page; nothing is kept between two."""

    def __init__(
        self,
        url: Secret,
        *,
        user_agent: str,
        allowed_hosts: AllowedHosts,
        clock: Clock,
        limits: RenderLimits | None = None,
        backend: PinnedBackend | None = None,
    ) -> None:
        """`url` is chromium: with a program's path, or that of a DevTools endpoint (ws, wss, http, https).

        It is a secret, as who has the endpoint's URL drives the browser.
        """
        self._url = url
        self._user_agent = user_agent
        self._allowed = allowed_hosts
        self._clock = clock
        self._limits = limits or RenderLimits()
        self._backend = backend or PinnedBackend(allowed_hosts)

    async def render(self, page: Fetched, *, deadline: float) -> bytes:
        """Return the HTML of `page`, in UTF-8, after its scripts ran."""
        left = deadline - self._clock.monotonic()
        stop = Stop()
        try:
            async with asyncio.timeout(left):
                # The first read of a secret waits for its service.
                url = (await asyncio.to_thread(self._url.current)).strip()
                async with self._browser(url, stop) as (address, vets):
                    return await self._page(address, page, stop, vets=vets)
        except TimeoutError as error:
            raise failure(ErrorCode.DEADLINE_EXCEEDED) from error
        except (StartError, cdp.BrowserGoneError, cdp.CommandError, httpx.HTTPError) as error:
            # The service may have another URL by now: the next try has it.
            await asyncio.to_thread(self._url.again)
            raise failure(ErrorCode.RENDERER_UNAVAILABLE) from error

    @asynccontextmanager
    async def _browser(self, url: str, stop: Stop) -> AsyncIterator[tuple[str, bool]]:
        """Yield the browser's WebSocket URL, and whether requests have to be vetted in the page."""
        limits = self._limits
        if not url.startswith(LOCAL):
            yield await _websocket_of(url, limits.start_s), True
            return
        async with (
            GuardedProxy(
                self._backend,
                allowed_hosts=self._allowed,
                limits=ProxyLimits(limits.requests, limits.transfer_bytes),
                on_excess=stop.exceeded,
            ) as proxy,
            launched(
                url.removeprefix(LOCAL),
                proxy_port=proxy.port,
                user_agent=self._user_agent,
                start_s=limits.start_s,
                memory_bytes=limits.memory_bytes,
                on_excess=stop.exceeded,
            ) as address,
        ):
            yield address, False

    async def _page(self, address: str, page: Fetched, stop: Stop, *, vets: bool) -> bytes:
        limits = self._limits
        most = limits.document_bytes * _ESCAPED + _MESSAGE_BYTES
        async with cdp.opened(
            address, max_bytes=most, open_timeout_s=limits.start_s, on_end=stop.gone
        ) as browser:
            judged: list[ChromiumPage] = []

            async def load() -> bytes:
                tab = ChromiumPage(
                    browser,
                    *await opened_tab(browser),
                    limits=PageLimits(
                        limits.requests, limits.document_bytes, limits.settle_s, limits.leave_s
                    ),
                    allowed_hosts=self._allowed if vets else None,
                    stop=stop,
                )
                if vets:
                    judged.append(tab)
                return await tab.html(page, self._user_agent)

            async def in_time() -> bytes:
                try:
                    async with asyncio.timeout(limits.page_s):
                        return await load()
                except TimeoutError:
                    raise failure(
                        ErrorCode.RENDER_LIMIT_EXCEEDED, "The page's scripts need too much: time"
                    ) from None

            try:
                return await stop.unless(in_time())
            finally:
                for tab in judged:
                    await tab.leave()


async def _websocket_of(url: str, timeout_s: float) -> str:
    """Return the browser's WebSocket of a DevTools endpoint. Raises httpx.HTTPError, BrowserGoneError."""
    parts = urlsplit(url)
    if parts.scheme in ("ws", "wss"):
        return url
    async with httpx.AsyncClient(trust_env=False, timeout=timeout_s) as client:
        answer = await client.get(urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/json/version")))
    try:
        told = urlsplit(str(answer.raise_for_status().json()["webSocketDebuggerUrl"]))
    except (ValueError, KeyError, TypeError) as error:
        raise cdp.BrowserGoneError from error
    # The browser names itself by the address that it sees.
    scheme = {"http": "ws", "https": "wss"}[parts.scheme]
    return urlunsplit(told._replace(scheme=scheme, netloc=parts.netloc))
