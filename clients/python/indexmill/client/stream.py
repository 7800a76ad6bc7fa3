"""Server-sent events, as a job's stream sends them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(slots=True)
class StreamReader:
    """Parser of server-sent events that keeps its position between two answers of one stream."""

    last_id: str = ""
    """Value of the next request's Last-Event-ID header."""
    retry_s: float = 3.0
    """Seconds to wait before the next request."""

    def read(self, text: str) -> Iterator[str]:
        """Yield the data of each complete event; one that was cut off is dropped."""
        data: list[str] = []
        seen = self.last_id
        # Not str.splitlines: that also splits at separators that JSON strings may contain.
        for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")[:-1]:
            name, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if not line:
                self.last_id = seen
                if data:
                    yield "\n".join(data)
                data = []
            elif name == "data":
                data.append(value)
            elif name == "id":
                seen = value
            elif name == "retry" and value.isascii() and value.isdigit():
                self.retry_s = int(value) / 1000
