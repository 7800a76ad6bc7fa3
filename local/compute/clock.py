"""The wall clock of the Lambda host; durations are measured on the monotonic clock instead."""

from __future__ import annotations

import time
from datetime import UTC, datetime


def epoch_ms() -> int:
    """Return milliseconds since 1970, as in `Lambda-Runtime-Deadline-Ms`."""
    return time.time_ns() // 1_000_000


def iso_now() -> str:
    """Return the time of a log record: UTC, milliseconds, for example `2026-01-31T12:00:00.123Z`."""
    now = datetime.fromtimestamp(time.time_ns() / 1e9, UTC)
    return f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond // 1000:03d}Z"
