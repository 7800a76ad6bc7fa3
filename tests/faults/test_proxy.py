"""The proxy does to connections what it says, and else nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

from local.faults.proxy import FaultProxy
from local.faults.toxics import Toxic

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Toxics:
    """Toxics of the connections, changed by tests."""

    def __init__(self) -> None:
        self.toxic: Toxic | None = None
        self.port = 0
        self.hits: list[str] = []

    async def ask(self, line: bytes, within_s: float = 2.0) -> bytes:
        """Send a line on a connection of its own and return all that comes back."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(line)
        writer.write_eof()
        try:
            return await asyncio.wait_for(reader.read(), within_s)
        finally:
            writer.close()


@pytest.fixture
async def asked() -> list[bytes]:
    """Return what reached the other side."""
    return []


@pytest.fixture
async def toxics(asked: list[bytes]) -> AsyncIterator[Toxics]:
    """Yield a proxy before a server that sends back what it gets."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 20):
            asked.append(data)
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made = Toxics()
    proxy = FaultProxy(
        "127.0.0.1",
        server.sockets[0].getsockname()[1],
        lambda: made.toxic,
        lambda toxic: made.hits.append(toxic.effect),
    )
    made.port = await proxy.start()
    yield made
    await proxy.stop()
    server.close()


async def test_a_healthy_connection_passes_everything(toxics: Toxics) -> None:
    data = bytes(range(256)) * 4000
    assert await toxics.ask(data) == data


async def test_latency(toxics: Toxics) -> None:
    toxics.toxic = Toxic("latency", seconds=0.1)
    began = time.monotonic()
    assert await toxics.ask(b"hello") == b"hello"
    assert time.monotonic() - began >= 0.2
    assert toxics.hits == ["latency"], "once for each connection"


@pytest.mark.parametrize("effect", ["reset", "down"])
async def test_open_and_new_connections_are_cut(toxics: Toxics, effect: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", toxics.port)
    writer.write(b"x")
    assert await reader.readexactly(1) == b"x"
    toxics.toxic = Toxic(effect)  # type: ignore[arg-type]
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(reader.readexactly(1), 2)
    writer.close()
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        await toxics.ask(b"y")
    toxics.toxic = None
    assert await toxics.ask(b"z") == b"z"
    assert toxics.hits == [effect] * 2


async def test_in_a_blackhole_nothing_passes_until_it_is_gone(toxics: Toxics, asked: list[bytes]) -> None:
    toxics.toxic = Toxic("blackhole")
    waiting = asyncio.create_task(toxics.ask(b"hello", 5))
    done, _ = await asyncio.wait({waiting}, timeout=0.2)
    assert not done
    assert asked == []
    toxics.toxic = None
    assert await waiting == b"hello"


async def test_an_answer_ends_early(toxics: Toxics, asked: list[bytes]) -> None:
    toxics.toxic = Toxic("limit_data", size=3, times=1)
    assert await toxics.ask(b"hello") == b"hel"
    assert asked == [b"hello"]
    assert await toxics.ask(b"hello") == b"hello"
    assert toxics.hits == ["limit_data"]


async def test_an_answer_drips(toxics: Toxics) -> None:
    toxics.toxic = Toxic("slicer", size=1, seconds=0.03)
    began = time.monotonic()
    assert await toxics.ask(b"hello") == b"hello"
    assert time.monotonic() - began >= 0.12
    assert toxics.hits == ["slicer"]


async def test_the_answer_to_a_request_is_lost_and_the_request_is_not(
    toxics: Toxics, asked: list[bytes]
) -> None:
    toxics.toxic = Toxic("swallow_reply", pattern="COMMIT", times=1)
    assert await toxics.ask(b"SELECT 1") == b"SELECT 1"
    with pytest.raises(ConnectionResetError):
        await toxics.ask(b"COMMIT")
    assert await toxics.ask(b"COMMIT") == b"COMMIT"
    assert asked == [b"SELECT 1", b"COMMIT", b"COMMIT"]


@asynccontextmanager
async def before(url: str, choose: Callable[[], Toxic | None]) -> AsyncIterator[str]:
    """Yield the address of a database behind a proxy."""
    parts = urlsplit(url)
    proxy = FaultProxy(parts.hostname or "", parts.port or 0, choose)
    port = await proxy.start()
    account = parts.netloc.rpartition("@")[0]
    yield parts._replace(netloc=f"{account}@127.0.0.1:{port}").geturl()
    await proxy.stop()


@pytest.mark.fault("F5")
@pytest.mark.integration
async def test_a_commit_whose_answer_is_lost_has_happened(database_url: str) -> None:
    toxic = Toxic("swallow_reply", pattern="COMMIT")

    def insert(url: str) -> None:
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO inbox (message_id) VALUES ('m-1')")

    async with before(database_url, lambda: toxic) as url:
        with pytest.raises(psycopg.OperationalError):
            await asyncio.to_thread(insert, url)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT message_id FROM inbox").fetchall() == [("m-1",)]
