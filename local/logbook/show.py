"""Formatting of log records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from local.logbook.records import Record, parse_report

_LEVELS: Final = {"DEBUG": "dim", "WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red"}
_USUAL: Final = frozenset({"level", "location", "message", "timestamp", "service", "xray_trace_id"})
_COLOURS: Final = ("cyan", "green", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta")

Part = tuple[str, str]
"""Text and its style."""


def parts(record: Record) -> Iterator[Part]:
    """Return time, function, request, and message, each with its style."""
    yield f"{record.at} ", "dim"
    yield f"{record.function} ", _colour(record.function)
    if record.request_id:
        yield f"{record.request_id[:8]} ", "dim"
    yield from _message(record)


def line(record: Record) -> str:
    """Return the same as plain text."""
    return "".join(text for text, _ in parts(record))


def values(fields: dict[str, Any]) -> str:
    """Return `key=value` pairs; texts without quotes where they are one word."""
    return " ".join(f"{name}={_value(value)}" for name, value in fields.items())


def _message(record: Record) -> Iterator[Part]:
    if record.stream == "platform":
        failed = (report := parse_report(record.message)) is not None and report.status is not None
        yield record.message.rstrip().replace("\t", "  "), "red" if failed else "dim"
        return
    if record.is_metrics:
        yield (
            f"METRIC {values({name: value for name, value in record.fields.items() if name != '_aws'})}",
            "dim",
        )
        return
    if not record.fields or "message" not in record.fields:
        style = "red" if record.stream == "stderr" else ""
        yield record.message.rstrip().replace("\n", "\n    "), style
        return
    level = str(record.fields.get("level", "INFO"))
    style = _LEVELS.get(level, "")
    yield f"{level} ", style or "dim"
    message = record.fields["message"]
    yield message if isinstance(message, str) else json.dumps(message, ensure_ascii=False), style or "bold"
    rest = {name: value for name, value in record.fields.items() if name not in _USUAL}
    trace = rest.pop("exception", None)
    if rest:
        yield f" {values(rest)}", ""
    if trace:
        yield "\n    " + str(trace).replace("\n", "\n    "), "red"


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value if value and " " not in value else json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, default=str)


def _colour(function: str) -> str:
    # Stable across runs: a hash of text differs from run to run.
    return _COLOURS[sum(function.encode()) % len(_COLOURS)]
