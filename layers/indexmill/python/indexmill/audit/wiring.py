"""Audit: prints the lines that a subscription of CloudWatch Logs sends, for its own log group."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from typing import Any


def build_writer() -> Callable[[dict[str, Any], object], None]:
    """Build audit/writer."""

    def handle(event: dict[str, Any], _context: object) -> None:
        for line in audit_lines(event):
            # One write for a line: Lambda makes one log event of it.
            print(line, flush=True)  # noqa: T201

    return handle


def audit_lines(event: dict[str, Any]) -> list[str]:
    """Return the lines that the subscription's filter chose; none of a message that only tests the target."""
    batch = json.loads(gzip.decompress(base64.b64decode(event["awslogs"]["data"])))
    if batch["messageType"] != "DATA_MESSAGE":
        return []
    return [str(each["message"]).rstrip("\r\n") for each in batch["logEvents"]]
