"""HTTP server under the front: aiohttp's, with the gateway's responses to protocol errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import BadHttpMessage, LineTooLong

MAX_HEADER_BYTES = 10_240
_MAX_URL_BYTES = 8_192
_MAX_HEADERS = MAX_HEADER_BYTES // 4
"""The shortest header is `a:` and the end of its line: the limit is the size of the block."""
_TOO_MANY = "Too many headers"
_KEEP_ALIVE_S = 75.0

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
Refusal = Callable[[web.BaseRequest, int], web.Response]


class _Connection(web.RequestHandler):
    """Answers protocol errors with `refuse` instead of aiohttp's text pages, and a slow header with 408."""

    __slots__ = ("_header_limit", "_header_s", "_is_late", "_refuse")

    def __init__(self, manager: web.Server, refuse: Refusal, header_s: float, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._refuse = refuse
        self._header_s = header_s
        self._header_limit: asyncio.TimerHandle | None = None
        self._is_late = False

    def data_received(self, data: bytes) -> None:
        """Begin the time of a header with its first byte."""
        super().data_received(data)
        # aiohttp waits for a request, and these bytes did not end its header.
        waits = self._waiter is not None and not self._waiter.done()
        if not waits:
            self._forget_header()
        elif self._header_limit is None:
            self._header_limit = self._loop.call_later(self._header_s, self._end_header)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the time of a header that never ended."""
        self._forget_header()
        super().connection_lost(exc)

    def _forget_header(self) -> None:
        if self._header_limit is not None:
            self._header_limit.cancel()
            self._header_limit = None

    def _end_header(self) -> None:
        self._header_limit, self._is_late = None, True
        # No header has a NUL: the parser refuses the request, and `handle_error` answers it.
        super().data_received(b"\0\r\n\r\n")

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> web.StreamResponse:
        """Keep the status, but distinguish a long URL (414) and long headers (431) from other errors."""
        if self._is_late:
            status = 408
        elif isinstance(exc, LineTooLong):
            status = 414 if _MAX_URL_BYTES in exc.args else 431
        elif isinstance(exc, BadHttpMessage) and _TOO_MANY in exc.message:
            status = 431
        response = self._refuse(request, status)
        response.force_close()
        return response


class GatewayServer(web.Server):
    """Protocol factory for `loop.create_server`. Bodies stay as sent: a gateway decompresses nothing."""

    def __init__(self, handler: Handler, refuse: Refusal, linger_s: float, header_s: float) -> None:
        super().__init__(handler)
        self._refuse = refuse
        self._header_s = header_s
        self._linger_s = linger_s

    def __call__(self) -> web.RequestHandler:
        """Return a new connection."""
        return _Connection(
            self,
            self._refuse,
            self._header_s,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_S,
            lingering_time=self._linger_s,
            max_line_size=_MAX_URL_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )
