"""Records of the functions' log files, as `local.compute.log_files` writes them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final

_REPORT: Final = re.compile(
    r"^REPORT RequestId: (?P<id>\S+)\tDuration: (?P<ms>[\d.]+) ms\t.*?Max Memory Used: (?P<mb>\d+) MB"
    r"(?:\tInit Duration: (?P<init>[\d.]+) ms)?"
    r"(?:\tStatus: (?P<status>\w+))?(?:\tError Type: (?P<error>[\w.]+))?"
)


_AS_TRACEBACK: Final = frozenset({"stack_trace", "exception_name"})
"""Fields of our logger that say in other words what the traceback says."""
_OF_RUNTIME: Final = frozenset({"stackTrace", "errorType", "errorMessage", "requestId", "logger"})
"""Fields of the runtime's lines that the traceback, or the record, has."""


@dataclass(frozen=True, slots=True)
class Record:
    """One line of one function's log, with the correlation ids from its START line."""

    at: str
    function: str
    request_id: str | None
    stream: str
    message: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the message when it is a JSON object."""
    jobs: tuple[str, ...] = ()
    gateway_request_id: str | None = None
    trace: str | None = None
    failure: str | None = None
    """Reason why the invocation failed, on its END."""

    @property
    def is_metrics(self) -> bool:
        """Return whether it is a metrics blob, which is not printed."""
        return "_aws" in self.fields


@dataclass(frozen=True, slots=True)
class Report:
    """A REPORT line; durations in milliseconds."""

    duration_ms: float
    memory_mb: int
    init_ms: float | None = None
    status: str | None = None
    """`timeout`, or the error type that ended the environment; None for a normal end."""


def parse(raw: bytes | str) -> Record | None:
    """Parse one line of a log file; None when it is no record (cut short by a full disk, edited by hand)."""
    try:
        found = json.loads(raw)
        return Record(
            at=str(found["at"]),
            function=str(found["function"]),
            request_id=found["request_id"],
            stream=str(found["stream"]),
            message=str(found["message"]),
            fields=fields_of(found["message"]),
            jobs=tuple(found.get("jobs", ())),
            gateway_request_id=found.get("gateway_request_id"),
            trace=found.get("trace"),
            failure=found.get("failure"),
        )
    except (ValueError, TypeError, KeyError):
        return None


def parse_report(message: str) -> Report | None:
    """Parse a REPORT line; None for any other line."""
    found = _REPORT.match(message)
    if found is None:
        return None
    init = float(found["init"]) if found["init"] else None
    return Report(float(found["ms"]), int(found["mb"]), init, found["error"] or found["status"])


class LogFolder:
    """Log files of a stack, read from the beginning, then incrementally; close it."""

    def __init__(self, folder: Path, functions: Collection[str] = ()) -> None:
        """`functions` are names; none means all."""
        self._folder = folder
        self._functions = frozenset(functions)
        self._tails: dict[Path, BinaryIO] = {}

    def known(self) -> list[str]:
        """Return the functions with logs."""
        return sorted(file.stem for file in self._folder.glob("*.jsonl"))

    def new(self) -> list[Record]:
        """Return the lines since the last call, oldest first over all files."""
        found = [record for raw in self._lines() if (record := parse(raw)) is not None]
        return sorted(found, key=lambda record: record.at)

    def close(self) -> None:
        """Close the files."""
        while self._tails:
            self._tails.popitem()[1].close()

    def _lines(self) -> Iterator[bytes]:
        for name in self.known():
            if self._functions and name not in self._functions:
                continue
            file = self._folder / f"{name}.jsonl"
            if file not in self._tails:
                self._tails[file] = file.open("rb")
            yield from self._tails[file]


def fields_of(message: str) -> dict[str, Any]:
    """Return the fields of a line that is a JSON object, else none.

    An exception is `exception`, a traceback as text, whether our logger wrote the line or the runtime did.
    """
    if not message.startswith("{"):
        return {}
    try:
        found = json.loads(message)
    except ValueError:
        return {}
    return _with_traceback(found) if isinstance(found, dict) else {}


def _with_traceback(fields: dict[str, Any]) -> dict[str, Any]:
    frames = fields.get("stackTrace")
    if not isinstance(frames, list):
        return {name: value for name, value in fields.items() if name not in _AS_TRACEBACK}
    kind, text = fields.get("errorType"), fields.get("errorMessage")
    said = f"{kind}: {text}" if text else str(kind)
    trace = "".join(("Traceback (most recent call last):\n", *map(str, frames), said))
    rest = {name: value for name, value in fields.items() if name not in _OF_RUNTIME and value is not None}
    return {"message": said, **rest, "exception": trace}
