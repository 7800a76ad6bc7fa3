"""HTTP serving for all stand-ins: on a loopback port, without request logs, until SIGTERM or parent exit."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

from aiohttp import web

from local.backends.process import PARENT_ENV

_PARENT_CHECK_S = 1.0


def stand_in_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser with the option that all stand-ins share: `--port`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, required=True, help="loopback port to listen on")
    return parser


def serve(app: web.Application, port: int) -> None:
    """Serve `app` on 127.0.0.1 and return after SIGTERM or SIGINT; `GET /health` answers 200."""
    app.router.add_get("/health", _health)
    app.cleanup_ctx.append(_end_with_parent)
    web.run_app(app, host="127.0.0.1", port=port, access_log=None, print=None, shutdown_timeout=0.5)


async def read_json_object(request: web.Request) -> dict[str, object]:
    """Return the request's JSON object. Raises ValueError when the body is anything else."""
    body = await request.json()
    if not isinstance(body, dict):
        raise ValueError("a JSON object is expected")  # noqa: TRY004
    return body


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _end_with_parent(_app: web.Application) -> AsyncIterator[None]:
    task = asyncio.create_task(_watch_parent(os.getppid())) if os.environ.get(PARENT_ENV) == "1" else None
    yield
    if task is not None:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)
