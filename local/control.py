"""A loopback port of a running stack's own: no secrets, only what happens.

GET /status    process ids, counters, queue depths, as JSON
GET /metrics   what functions and the host count, for Prometheus
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from local.metrics.exposition import CONTENT_TYPE
from local.metrics.telemetry import Telemetry


class ControlApi:
    """Serves what `status` and `telemetry` give at each request."""

    def __init__(self, status: Callable[[], dict[str, Any]], telemetry: Telemetry) -> None:
        self._status = status
        self._telemetry = telemetry
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
        if request.method == "GET" and request.path == "/status":
            found = {**self._status(), **await self._telemetry.summary()}
            return web.Response(text=json.dumps(found), content_type="application/json")
        if request.method == "GET" and request.path == "/metrics":
            text = await self._telemetry.exposition()
            return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
        return web.Response(status=404)
