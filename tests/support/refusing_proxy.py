"""Proxy that refuses what RDS Proxy refuses, and reports the statements that would pin its sessions.

A connection with startup options gets RDS Proxy's error, a CancelRequest gets nothing; the rest is forwarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from pathlib import Path
from typing import Final

from tests.support.pinning import pins

OPTIONS_REFUSED: Final = "Feature not supported: RDS Proxy currently doesn't support command-line options"
_FEATURE_NOT_SUPPORTED: Final = "0A000"
_PROTOCOL_3: Final = 3 << 16
_CANCEL: Final = 80877102
_ENCRYPTION: Final = (80877103, 80877104)
_PIECE: Final = 1 << 16
_SHOWN: Final = 500


class RefusingProxy:
    """Forwards connections to the loopback port `target`.

    Each refusal, and each statement that pins, is a line of JSON in `report`: {"login", "why", "statement"}.
    """

    def __init__(self, target: int, report: Path) -> None:
        self._target = target
        self._report = report

    async def start(self, port: int) -> None:
        """Listen on a loopback port, as long as the event loop runs."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await self._serve_client(reader, writer)
        writer.close()

    async def _serve_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code, body = await _first_packet(reader)
        while code in _ENCRYPTION:
            writer.write(b"N")
            code, body = await _first_packet(reader)
        if code == _CANCEL:
            self._note("", "a CancelRequest is refused", "")
            return
        parameters = _parameters(body)
        login = parameters.get("user", "")
        if "options" in parameters:
            self._note(login, "startup options are refused", parameters["options"])
            writer.write(_fatal(OPTIONS_REFUSED))
            await writer.drain()
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            server_writer.write(struct.pack("!II", len(body) + 8, code) + body)
            async with asyncio.TaskGroup() as both:
                asking = both.create_task(self._ask(login, reader, server_writer))
                both.create_task(_answer(server_reader, writer, asking))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            server_writer.close()

    async def _ask(self, login: str, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        """Forward the client's messages one by one, reading the texts of statements."""
        try:
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:], "big") - 4)
                if head[:1] == b"Q":
                    self._read(login, body.partition(b"\0")[0])
                elif head[:1] == b"P":
                    name, _, rest = body.partition(b"\0")
                    self._read(login, rest.partition(b"\0")[0], name.decode(errors="replace"))
                server.write(head + body)
                await server.drain()
        finally:
            server.close()

    def _read(self, login: str, statement: bytes, name: str = "") -> None:
        text = statement.decode(errors="replace")
        if why := pins(text, name=name):
            self._note(login, why, text)

    def _note(self, login: str, why: str, statement: str) -> None:
        line = json.dumps({"login": login, "why": why, "statement": statement[:_SHOWN]})
        with self._report.open("a") as report:
            report.write(line + "\n")


async def _first_packet(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return code and body of a packet without a type, as connections begin with."""
    length, code = struct.unpack("!II", await reader.readexactly(8))
    return code, await reader.readexactly(length - 8)


def _parameters(body: bytes) -> dict[str, str]:
    words = [each.decode(errors="replace") for each in body.split(b"\0")]
    return dict(zip(words[::2], words[1::2], strict=False))


def _fatal(sentence: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C{_FEATURE_NOT_SUPPORTED}\0M{sentence}\0\0".encode()
    return b"E" + struct.pack("!I", len(fields) + 4) + fields


async def _answer(
    server: asyncio.StreamReader, writer: asyncio.StreamWriter, asking: asyncio.Task[None]
) -> None:
    """Forward the server's bytes; when it leaves, the client's connection ends too."""
    while piece := await server.read(_PIECE):
        writer.write(piece)
        await writer.drain()
    asking.cancel()
