"""Wiring of audit/writer: what it writes into its log group is what it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def build_writer() -> Callable[[dict[str, Any], object], None]:
    """Build audit/writer."""
    from indexmill.audit.lines import audit_lines

    def handle(event: dict[str, Any], _context: object) -> None:
        for line in audit_lines(event):
            # One write for a line: Lambda makes one log event of it.
            print(line, flush=True)  # noqa: T201

    return handle
