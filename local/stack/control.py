"""Control API of a running stack on a loopback port; it serves no secrets.

GET /status             process ids, counters, queue depths, as JSON
GET /metrics            metrics of functions and host, for Prometheus
GET /errors             errors of functions after number `since` (query, default 0), as JSON
POST /schedules/NAME    {"mode", "times", "delay", "fire"}: fault mode of a schedule; one firing now
POST /releases          {"tree", "share", "seconds"}: run another tree, with the key of ops in X-API-Key
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from aiohttp import web

from local.metrics.exposition import CONTENT_TYPE
from local.metrics.telemetry import Telemetry
from local.stack.function_errors import FunctionErrors
from local.triggers.schedule import FaultMode, Schedule

_SCHEDULES = "/schedules/"
Release = Callable[[Path, float, float], Awaitable[dict[str, Any]]]


class ControlApi:
    """Serves the current results of `status` and `telemetry`."""

    def __init__(
        self, status: Callable[[], dict[str, Any]], telemetry: Telemetry, errors: FunctionErrors
    ) -> None:
        self._status = status
        self._telemetry = telemetry
        self._errors = errors
        self._runner: web.ServerRunner | None = None
        self.schedules: Mapping[str, Schedule] = {}
        """By name, once known."""
        self._release: Release | None = None
        self._key = ""

    def allow_releases(self, release: Release, key: str) -> None:
        """Serve releases to clients with `key`: they run code, which not every user of the machine may."""
        self._release, self._key = release, key

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
            return _answer({**self._status(), **await self._telemetry.summary()})
        if request.method == "GET" and request.path == "/metrics":
            text = await self._telemetry.exposition()
            return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})
        if request.method == "GET" and request.path == "/errors":
            since = request.query.get("since", "0")
            return _answer(self._errors.since(int(since) if since.isdecimal() else 0))
        if request.method == "POST" and request.path.startswith(_SCHEDULES):
            return await self._update_schedule(request, request.path.removeprefix(_SCHEDULES))
        if request.method == "POST" and request.path == "/releases" and self._release is not None:
            return await self._run_release(request, self._release)
        return web.Response(status=404)

    async def _run_release(self, request: web.BaseRequest, release: Release) -> web.Response:
        if not hmac.compare_digest(request.headers.get("X-API-Key", "").encode(), self._key.encode()):
            return _answer({"detail": "X-API-Key must be the key of ops"}, 403)
        try:
            body = await request.json()
            tree, share, seconds = Path(body["tree"]), float(body["share"]), float(body["seconds"])
        except (KeyError, TypeError, ValueError) as error:
            return _answer({"detail": f"{error}; the fields are tree, share and seconds"}, 400)
        if not (tree / "template.yaml").is_file():
            return _answer({"detail": f"{tree} has no template.yaml"}, 400)
        return _answer(await release(tree, share, seconds))

    async def _update_schedule(self, request: web.BaseRequest, name: str) -> web.Response:
        schedule = self.schedules.get(name)
        if schedule is None:
            return _answer({"detail": f"schedules are: {', '.join(self.schedules) or 'none'}"}, 404)
        # A web page may send a form to any port of this machine, but no JSON.
        if request.content_type != "application/json":
            return _answer({"detail": "application/json is required"}, 415)
        try:
            body = await request.json()
            fire = body.pop("fire", False)
            if body:
                schedule.set_fault_mode(FaultMode(**body))
        except (AttributeError, TypeError, ValueError) as error:
            return _answer({"detail": f"{error}; the fields are mode, times, delay and fire"}, 400)
        if fire:
            schedule.fire()
        return _answer(schedule.stats())


def _answer(content: Any, status: int = 200) -> web.Response:
    return web.Response(text=json.dumps(content), content_type="application/json", status=status)
