"""Access log: one JSON object for each request, in the template's format when it names one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from local.front.exchange import VARIABLE, Exchange

_MISSING = "-"
_DEFAULT_FORMAT = {
    "requestId": "$context.requestId",
    "ip": "$context.identity.sourceIp",
    "requestTime": "$context.requestTime",
    "httpMethod": "$context.httpMethod",
    "path": "$context.path",
    "resourcePath": "$context.resourcePath",
    "protocol": "$context.protocol",
    "status": "$context.status",
    "responseLength": "$context.responseLength",
    "responseLatency": "$context.responseLatency",
    "integrationLatency": "$context.integrationLatency",
    "integrationStatus": "$context.integrationStatus",
    "error.responseType": "$context.error.responseType",
    "authorizer.principalId": "$context.authorizer.principalId",
}

Sink = Callable[[dict[str, Any]], None] | Path | None


class AccessLog:
    """Writes to a callable (as an object) or a file (as a line); with no sink it does nothing.

    Headers are not part of the vocabulary, so no key can reach the log.
    """

    def __init__(self, sink: Sink, log_format: str | None) -> None:
        self._sink = sink
        self._file: TextIO | None = None
        template = _parse(log_format) if log_format else _DEFAULT_FORMAT
        self._fields = None if template is None else {name: _compile(part) for name, part in template.items()}
        self._line = _compile(log_format or "")

    def open(self) -> None:
        """Open the file, creating its folder."""
        if isinstance(self._sink, Path):
            self._sink.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._sink.open("a", encoding="utf-8")

    def close(self) -> None:
        """Close the file; writing again needs another `open`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, exchange: Exchange) -> None:
        """Log one finished request. A variable that has no value reads `-`."""
        if self._sink is None:
            return
        record = self._render(exchange)
        if self._file is not None:
            self._file.write(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n")
            self._file.flush()
        elif not isinstance(self._sink, Path):
            self._sink(record)

    def _render(self, exchange: Exchange) -> dict[str, Any]:
        if self._fields is not None:
            return {name: fill(exchange) for name, fill in self._fields.items()}
        line = str(self._line(exchange))
        try:
            record = json.loads(line)
        except ValueError:
            return {"message": line}
        return record if isinstance(record, dict) else {"message": line}


def _parse(log_format: str) -> dict[str, Any] | None:
    """Return the format as an object with variables in its strings; None if it is no JSON unsubstituted."""
    try:
        template = json.loads(log_format)
    except ValueError:
        return None
    return template if isinstance(template, dict) else None


def _compile(value: Any) -> Callable[[Exchange], Any]:
    """Return a function that fills in the variables of one value of the format."""
    if isinstance(value, dict):
        fields = {name: _compile(inner) for name, inner in value.items()}
        return lambda exchange: {name: fill(exchange) for name, fill in fields.items()}
    if isinstance(value, list):
        items = [_compile(inner) for inner in value]
        return lambda exchange: [fill(exchange) for fill in items]
    if not isinstance(value, str):
        return lambda _: value
    if whole := VARIABLE.fullmatch(value):
        name = whole.group(1)
        return lambda exchange: exchange.variable(name) or _MISSING
    return lambda exchange: VARIABLE.sub(lambda v: exchange.variable(v.group(1)) or _MISSING, value)
