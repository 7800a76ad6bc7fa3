"""A web site with configurable misbehaviour, on a free loopback port."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

Misbehaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def answer(
    body: bytes | str, content_type: str = "text/html", status: str = "200 OK", **headers: str
) -> bytes:
    """A complete HTTP answer; `headers` are named with underscores."""
    data = body.encode() if isinstance(body, str) else body
    fields = {"content-type": content_type, "content-length": str(len(data))}
    fields |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items() if value)
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + data


def redirect(location: str, status: str = "302 Found") -> bytes:
    return answer("", status=status, location=location)


class Site:
    """Answers by path, from `routes`; `heads` and `paths` tell what was asked. `greeting` comes unasked."""

    def __init__(self) -> None:
        self.routes: dict[str, bytes | Misbehaviour] = {}
        self.heads: list[str] = []
        self.connections = 0
        self.greeting = b""
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def host(self) -> tuple[str, int]:
        return ("127.0.0.1", self.port)

    @property
    def paths(self) -> list[str]:
        return [head.split(" ")[1] for head in self.heads]

    def page(
        self,
        path: str,
        body: bytes | str,
        content_type: str = "text/html",
        status: str = "200 OK",
        **headers: str,
    ) -> str:
        """Serve `body` and return its URL."""
        self.routes[path] = answer(body, content_type, status, **headers)
        return self.url + path

    def route(self, path: str, behaviour: bytes | Misbehaviour) -> str:
        """Serve raw bytes or whatever a coroutine does, and return its URL."""
        self.routes[path] = behaviour
        return self.url + path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        writer.write(self.greeting)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                path = head.split(" ")[1]
                route = self.routes.get(path, answer("", status="404 Not Found"))
                if isinstance(route, bytes):
                    writer.write(route)
                    await writer.drain()
                else:
                    await route(reader, writer)
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()

    async def _start(self, context: ssl.SSLContext | None, host: str) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, host, 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        return server

    async def _stop(self, server: asyncio.Server) -> None:
        server.close()
        for task in list(self._tasks):
            task.cancel()
        for writer in list(self._writers):
            writer.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await server.wait_closed()


@contextmanager
def running_site(context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Iterator[Site]:
    """Run a site in a thread until the block ends."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="site")
    thread.start()
    site = Site()
    try:
        server = asyncio.run_coroutine_threadsafe(site._start(context, host), loop).result(10)
        yield site
        asyncio.run_coroutine_threadsafe(site._stop(server), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
