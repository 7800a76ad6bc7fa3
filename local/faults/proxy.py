"""TCP proxy on its own port that simulates network faults."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Final

from local.faults.toxics import Toxic

_PIECE: Final = 1 << 16
_POLL_S: Final = 0.02
_RESET: Final = struct.pack("ii", 1, 0)

Choose = Callable[[], Toxic | None]
"""Returns the active toxic."""
OnHit = Callable[[Toxic], None]
"""Called once for each connection that a toxic hit."""


class FaultProxy:
    """Forwards connections to `host` and `port`; `choose` is called whenever bytes arrive."""

    def __init__(self, host: str, port: int, choose: Choose, on_hit: OnHit = lambda _: None) -> None:
        self._target = (host, port)
        self._on_hit = on_hit
        self._choose = choose
        self._server: asyncio.Server | None = None
        self._watch: asyncio.Task[None] | None = None
        self._open: set[_Connection] = set()
        self._hits = 0
        self._last: Toxic | None = None

    async def start(self) -> int:
        """Listen on 127.0.0.1; return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self._watch = asyncio.create_task(self._reset_while_active(), name="fault-proxy")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Reset every connection and close the port."""
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.cut()

    def now(self) -> Toxic | None:
        """Return the active toxic; counts start from zero with each other toxic."""
        toxic = self._choose()
        if toxic != self._last:
            self._last, self._hits = toxic, 0
        return toxic

    def hit(self, toxic: Toxic) -> bool:
        """Return whether a toxic with a limit on `times` hits one more connection."""
        if toxic.times is not None and self._hits >= toxic.times:
            return False
        self._hits += 1
        self.record_hit(toxic)
        return True

    def record_hit(self, toxic: Toxic) -> None:
        """Report that a toxic hit one more connection."""
        self._on_hit(toxic)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        toxic = self.now()
        if toxic is not None and toxic.effect in ("down", "reset"):
            self.record_hit(toxic)
            _abort(writer)
            return
        try:
            server_reader, server_writer = await asyncio.open_connection(*self._target)
        except OSError:
            _abort(writer)
            return
        connection = _Connection(self, writer, server_writer)
        self._open.add(connection)
        try:
            await asyncio.gather(
                connection.ask(reader, server_writer), connection.answer(server_reader, writer)
            )
        except OSError:
            pass
        finally:
            self._open.discard(connection)
            connection.close()

    async def _reset_while_active(self) -> None:
        while True:
            toxic = self.now()
            if toxic is not None and toxic.effect in ("down", "reset"):
                for connection in list(self._open):
                    connection.note(toxic)
                    connection.cut()
            await asyncio.sleep(_POLL_S)


class _Connection:
    """Two directions of one connection."""

    def __init__(self, proxy: FaultProxy, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._writers = (near, far)
        self._swallow: Toxic | None = None
        self._left: int | None = None
        self._noted: Toxic | None = None

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward from the client."""
        while piece := await reader.read(_PIECE):
            toxic = self._proxy.now()
            if toxic is not None and toxic.effect == "swallow_reply" and toxic.pattern.encode() in piece:
                self._swallow = toxic if self._proxy.hit(toxic) else None
            await self._pass(toxic, writer, piece)
        writer.write_eof()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward to the client."""
        while piece := await reader.read(_PIECE):
            toxic = self._proxy.now()
            if self._swallow is not None:
                self.cut()
                return
            if toxic is not None and toxic.effect == "slicer":
                self.note(toxic)
                for at in range(0, len(piece), toxic.size):
                    writer.write(piece[at : at + toxic.size])
                    await writer.drain()
                    await asyncio.sleep(toxic.seconds)
            elif toxic is not None and toxic.effect == "limit_data":
                if self._is_cut(toxic, writer, piece):
                    return
            else:
                await self._pass(toxic, writer, piece)
        writer.write_eof()

    def _is_cut(self, toxic: Toxic, writer: asyncio.StreamWriter, piece: bytes) -> bool:
        if self._left is None:
            self._left = toxic.size if self._proxy.hit(toxic) else 1 << 62
        writer.write(piece[: self._left])
        self._left -= len(piece)
        if self._left < 0:
            self.close()
        return self._left < 0

    async def _pass(self, toxic: Toxic | None, writer: asyncio.StreamWriter, piece: bytes) -> None:
        if toxic is not None and toxic.effect in ("blackhole", "latency"):
            self.note(toxic)
        if toxic is not None and toxic.effect == "blackhole":
            # Buffered, not lost: the bytes arrive once the toxic is removed.
            while (now := self._proxy.now()) is not None and now.effect == "blackhole":
                await asyncio.sleep(_POLL_S)
        elif toxic is not None and toxic.effect == "latency":
            await asyncio.sleep(toxic.seconds)
        writer.write(piece)
        await writer.drain()

    def note(self, toxic: Toxic) -> None:
        """Report a toxic without a limit on `times` when it first hits this connection."""
        if toxic != self._noted:
            self._noted = toxic
            self._proxy.record_hit(toxic)

    def cut(self) -> None:
        """Reset both sides."""
        for writer in self._writers:
            _abort(writer)

    def close(self) -> None:
        """Close both sides once all written data is sent."""
        for writer in self._writers:
            writer.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, as a machine does that does not know the connection."""
    sock = writer.get_extra_info("socket")
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
