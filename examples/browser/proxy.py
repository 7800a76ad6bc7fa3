"""Back end for browsers: serves the page in this folder and proxies /api/… to the gateway with the key.

`GATEWAY=… KEY=… .venv/bin/python examples/browser/proxy.py`, then open http://127.0.0.1:8321/
"""

from __future__ import annotations

import os
from pathlib import Path

from aiohttp import ClientSession, web

PASSED_ON = ("Content-Type", "If-None-Match", "Last-Event-ID")
PASSED_BACK = ("Content-Type", "Cache-Control", "ETag", "Retry-After", "X-Request-Id")


def make_app(gateway: str, key: str) -> web.Application:
    """Return the application; every client that can reach it acts as the key's owner."""

    async def pass_on(request: web.Request) -> web.Response:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        url = gateway + request.raw_path.removeprefix("/api")
        async with (
            ClientSession(headers={**headers, "X-API-Key": key}) as session,
            session.request(request.method, url, data=await request.read()) as answer,
        ):
            back = {name: answer.headers[name] for name in PASSED_BACK if name in answer.headers}
            return web.Response(status=answer.status, headers=back, body=await answer.read())

    async def page(request: web.Request) -> web.FileResponse:
        return web.FileResponse(Path(__file__).with_name(request.match_info["name"] or "index.html"))

    app = web.Application()
    app.router.add_route("*", "/api/{path:.*}", pass_on)
    app.router.add_get(r"/{name:(watch\.js)?}", page)
    return app


if __name__ == "__main__":
    web.run_app(make_app(os.environ["GATEWAY"], os.environ["KEY"]), host="127.0.0.1", port=8321)
