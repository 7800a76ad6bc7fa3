"""The HTTP client, against servers that hang up, respond slowly or send invalid responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from local.triggers.keep_alive import Disconnected, KeepAliveClient

REQUEST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
Answer = Callable[[int, asyncio.StreamWriter], Awaitable[None]]
Serve = Callable[[Answer], Awaitable[KeepAliveClient]]


class Connections:
    count = 0


@pytest_asyncio.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start a server that calls `answer(requests so far on this connection, writer)` for each request."""
    servers: list[asyncio.Server] = []
    clients: list[KeepAliveClient] = []

    async def start(answer: Answer) -> KeepAliveClient:
        Connections.count = 0

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            Connections.count += 1
            requests = 0
            try:
                while await reader.readexactly(len(REQUEST)):
                    requests += 1
                    await answer(requests, writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        servers.append(server)
        clients.append(KeepAliveClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
    for server in servers:
        server.close()
        await server.wait_closed()


async def test_a_connection_is_kept_and_replaced_when_the_server_hangs_up(serve: Serve) -> None:
    async def three_then_close(requests: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        if requests == 3:
            writer.close()

    client = await serve(three_then_close)
    answers = [await client.post(REQUEST) for _ in range(9)]
    assert answers == [(200, b"ok")] * 9
    assert Connections.count == 3


async def test_connection_close_is_honoured(serve: Serve) -> None:
    async def close(_requests: int, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")

    client = await serve(close)
    assert [await client.post(REQUEST) for _ in range(3)] == [(400, b"")] * 3
    assert Connections.count == 3


async def test_an_answer_in_pieces_is_put_together(serve: Serve) -> None:
    async def in_pieces(_requests: int, writer: asyncio.StreamWriter) -> None:
        for piece in (b"HTTP/1.1 20", b"0 OK\r\nContent-Le", b"ngth: 4\r\n\r", b"\nab", b"cd"):
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.005)

    client = await serve(in_pieces)
    assert await client.post(REQUEST) == (200, b"abcd")


async def test_a_server_that_only_hangs_up_is_an_error(serve: Serve) -> None:
    async def hang_up(_requests: int, writer: asyncio.StreamWriter) -> None:
        writer.close()

    client = await serve(hang_up)
    with pytest.raises(Disconnected):
        await client.post(REQUEST)


@pytest.mark.parametrize(
    "answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"]
)
async def test_an_answer_it_cannot_read_is_an_error(serve: Serve, answer: bytes) -> None:
    async def write(_requests: int, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)

    client = await serve(write)
    with pytest.raises(ConnectionError):
        await client.post(REQUEST)


async def test_a_cancelled_request_still_returns_an_answer_that_was_under_way(serve: Serve) -> None:
    async def answer_late(_requests: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.1)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmouse")

    client = await serve(answer_late)
    call = asyncio.create_task(client.post(REQUEST))
    await asyncio.sleep(0.03)
    call.cancel()
    assert await call == (200, b"mouse")


async def test_a_cancelled_request_ends_soon_without_an_answer(serve: Serve) -> None:
    gone = asyncio.Event()

    async def never(_requests: int, _writer: asyncio.StreamWriter) -> None:
        await gone.wait()

    client = await serve(never)
    call = asyncio.create_task(client.post(REQUEST))
    await asyncio.sleep(0.03)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, 2)
    gone.set()


def test_only_plain_http_endpoints_are_taken() -> None:
    with pytest.raises(ValueError, match="plain http"):
        KeepAliveClient("https://127.0.0.1:1")
