"""A database behind a connection that fails on request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from local.faults.proxy import FaultProxy
from local.faults.toxics import Toxic
from tests.support.pooled_runs import pooled


@dataclass
class Line:
    """URL of the database through a proxy, and the faults injected there."""

    url: str = ""
    toxic: Toxic | None = None
    fired: list[object] = field(default_factory=list)
    """Faults that occurred."""

    def lose_reply_to(self, pattern: str) -> None:
        """Let the next statement with `pattern` in it be done, and its answer be lost."""
        self.toxic = Toxic("swallow_reply", pattern=pattern, times=1)


@contextmanager
def line_to(url: str) -> Iterator[Line]:
    """Yield a line to the database at `url`, carried by a thread of its own."""
    line, parts = Line(), urlsplit(pooled(url))
    proxy = FaultProxy(parts.hostname or "", parts.port or 0, lambda: line.toxic, line.fired.append)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="line")
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(proxy.start(), loop).result(10)
        account = parts.netloc.rpartition("@")[0]
        line.url = parts._replace(netloc=f"{account}@127.0.0.1:{port}").geturl()
        yield line
        asyncio.run_coroutine_threadsafe(proxy.stop(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
