"""`GET /status` of a running stack, on a loopback port of its own: process ids and counters, no secrets."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web


class ControlApi:
    """Serves what `status` gives at each request."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._runner: web.ServerRunner | None = None

    async def start(self) -> str:
        """Listen; returns the base URL."""
        self._runner = web.ServerRunner(web.Server(self._handle))
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method != "GET" or request.path != "/status":
            return web.Response(status=404)
        return web.Response(text=json.dumps(self._status()), content_type="application/json")
