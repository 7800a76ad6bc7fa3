"""Notes that a suspect is being tried, and, if it comes to that, that it ran out of time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from indexmill.platform.releases import ReleaseNote


class LastWords:
    """Around one suspect's try. Whoever ends the process in here leaves a note that says so."""

    def __init__(
        self, write: Callable[[str, ReleaseNote], None], message_id: str, note: ReleaseNote, *, after_s: float
    ) -> None:
        """After `after_s` seconds the function is about to be stopped."""
        self._write = write
        self._message_id = message_id
        self._note = note
        self._timer = threading.Timer(max(0.0, after_s), write, (message_id, note.out_of_time()))
        # A thread that waits must not keep the process.
        self._timer.daemon = True

    def __enter__(self) -> Self:
        """Write that the try begins."""
        self._write(self._message_id, self._note.taken())
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ended in order; what is noted next comes after anything that the timer wrote."""
        self._timer.cancel()
        self._timer.join()
