"""Function logs: lines from the pipes of a process, with their request, in a JSON-lines file per function."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from local.compute.clock import iso_now

_READ_BYTES = 1 << 16
_DRAIN_READS = 32  # a pipe holds 64 KiB; a writer that never stops must not block the loop
_MAX_LINE_BYTES = 1 << 20
_FLUSH_S = 0.02


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One line of a function's log; `stream` is stdout, stderr or platform."""

    at: str
    function: str
    request_id: str | None
    stream: str
    message: str
    more: Mapping[str, Any] = field(default_factory=dict)
    """Fields of platform lines: ids of the event at START, reason and place of a failure at END."""


class LogFiles:
    """Writes `<directory>/<function>.jsonl`, buffered for milliseconds; listeners are called at once."""

    def __init__(self, directory: Path, listener: Callable[[LogRecord], None] | None = None) -> None:
        self._directory = directory
        self.listeners = [] if listener is None else [listener]
        self._files: dict[str, BinaryIO] = {}
        self._pending: dict[str, list[bytes]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def write(
        self,
        function: str,
        request_id: str | None,
        stream: str,
        message: str,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        """Write one record; `more` are fields for readers of the file only."""
        at = iso_now()
        record: dict[str, Any] = {
            "at": at,
            "function": function,
            "request_id": request_id,
            "stream": stream,
            "message": message,
            **(more or {}),
        }
        line = json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        self._pending.setdefault(function, []).append(line)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_S, self.flush)
        for listener in self.listeners:
            listener(LogRecord(at, function, request_id, stream, message, more or {}))

    def flush(self) -> None:
        """Write everything to disk."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, {}
        for function, lines in pending.items():
            file = self._files.get(function)
            if file is None:
                self._directory.mkdir(parents=True, exist_ok=True)
                # Unbuffered, so that a reader never sees half a line: one write each.
                file = self._files[function] = (self._directory / f"{function}.jsonl").open("ab", buffering=0)
            file.write(b"".join(lines))

    def close(self) -> None:
        """Flush and close the files."""
        self.flush()
        while self._files:
            self._files.popitem()[1].close()


class LogPipe:
    """Reader of one pipe of a process, line by line.

    The pipe is never paused: a process waiting for its reader would look like one that hangs. `drain` reads
    what the process has written so far: so a line printed before the result belongs to that request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_line: Callable[[str], None]) -> None:
        self._loop = loop
        self._on_line = on_line
        self._rest = bytearray()
        self._fd, self.write_end = os.pipe()
        os.set_blocking(self._fd, False)
        loop.add_reader(self._fd, self._read)

    def drain(self) -> None:
        """Read what is available, and pass on an unfinished line too."""
        for _ in range(_DRAIN_READS):
            if not self._read():
                break
        self._emit_rest()

    def close(self) -> None:
        """Drain and close; safe to call twice."""
        self.close_write_end()
        if self._fd >= 0:
            self.drain()
        self._close_read_end()

    def close_write_end(self) -> None:
        """Close our copy of the write end, which the process inherited."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def _close_read_end(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> bool:
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._emit_rest()
            self._close_read_end()
            return False
        self._feed(data)
        return True

    def _feed(self, data: bytes) -> None:
        head, newline, tail = data.rpartition(b"\n")
        if newline:
            for line in (bytes(self._rest) + head).split(b"\n"):
                self._emit(line)
            self._rest.clear()
        self._rest += tail
        while len(self._rest) >= _MAX_LINE_BYTES:
            self._emit(bytes(self._rest[:_MAX_LINE_BYTES]))
            del self._rest[:_MAX_LINE_BYTES]

    def _emit_rest(self) -> None:
        if self._rest:
            line = bytes(self._rest)
            self._rest.clear()
            self._emit(line)

    def _emit(self, line: bytes) -> None:
        # The runtime client joins the lines of a stack trace by carriage returns, to keep it one record.
        self._on_line(line.decode("utf-8", "replace").rstrip("\r").replace("\r", "\n"))
