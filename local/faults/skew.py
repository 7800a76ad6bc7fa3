"""Clock skew: a wrong wall clock for a function's code and its libraries."""

from __future__ import annotations

import sys
import time
from datetime import datetime, timedelta, tzinfo
from typing import Any, Final

_CLOCK: Final = "indexmill.platform.time"


class Skew:
    """Shift of one process's wall clock; monotonic clocks are unchanged, as on a real machine.

    The product reads one module for the time, and most libraries read `time.time`. Unchanged are those that
    call `datetime`, which cannot be patched in place: botocore signs with the true time.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._installed = False

    def set(self, seconds: float) -> None:
        """Set the clock `seconds` ahead, or behind when negative."""
        self._seconds = seconds
        if seconds and not self._installed:
            self._install()

    def now(self, tz: tzinfo | None = None) -> datetime:
        """Return `datetime.now` of this machine, shifted."""
        return datetime.now(tz) + timedelta(seconds=self._seconds)

    def _install(self) -> None:
        self._installed = True
        seconds, nanoseconds = time.time, time.time_ns
        changed: dict[str, Any] = {
            "time": lambda: seconds() + self._seconds,
            "time_ns": lambda: nanoseconds() + round(self._seconds * 1e9),
        }
        for name, function in changed.items():
            setattr(time, name, function)
        clock = sys.modules.get(_CLOCK)
        if clock is not None:
            vars(clock)["datetime"] = self
