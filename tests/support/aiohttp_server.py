"""An aiohttp application on a loopback port, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


@contextmanager
def served(app: web.Application, port: int = 0) -> Iterator[str]:
    """Serve `app` until the block ends and yield its address, without a slash at the end.

    Port 0 is a free one.
    """
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    thread = threading.Thread(target=loop.run_forever, name="aiohttp-server")
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(_start(runner, port), loop).result(10)
        yield f"http://127.0.0.1:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(_stop(runner), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _start(runner: web.AppRunner, port: int) -> int:
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    found: int = runner.addresses[0][1]
    return found


async def _stop(runner: web.AppRunner) -> None:
    await runner.cleanup()
    # Answers that were made to hang would outlive the server.
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
