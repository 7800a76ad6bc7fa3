"""HTTP server under the front: aiohttp's, with the gateway's responses to protocol errors."""

from __future__ import annotations

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
    """Answers protocol errors with `refuse` instead of aiohttp's text pages."""

    __slots__ = ("_refuse",)

    def __init__(self, manager: web.Server, refuse: Refusal, **settings: Any) -> None:
        super().__init__(manager, **settings)
        self._refuse = refuse

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's signature
    ) -> web.StreamResponse:
        """Keep the status, but distinguish a long URL (414) and long headers (431) from other errors."""
        if isinstance(exc, LineTooLong):
            status = 414 if _MAX_URL_BYTES in exc.args else 431
        elif isinstance(exc, BadHttpMessage) and _TOO_MANY in exc.message:
            status = 431
        response = self._refuse(request, status)
        response.force_close()
        return response


class GatewayServer(web.Server):
    """Protocol factory for `loop.create_server`. Bodies stay as sent: a gateway decompresses nothing."""

    def __init__(self, handler: Handler, refuse: Refusal, linger_s: float) -> None:
        super().__init__(handler)
        self._refuse = refuse
        self._linger_s = linger_s

    def __call__(self) -> web.RequestHandler:
        """Return a new connection."""
        return _Connection(
            self,
            self._refuse,
            loop=self._loop,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_KEEP_ALIVE_S,
            lingering_time=self._linger_s,
            max_line_size=_MAX_URL_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            max_headers=_MAX_HEADERS,
        )
