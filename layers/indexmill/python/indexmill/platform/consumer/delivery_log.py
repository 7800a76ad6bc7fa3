"""Delivery records: tries and crashes of a message, kept between two deliveries.

A queue counts receives, and receives are neither tries nor crashes: a message is also received when a
function is throttled, when a deploy is broken, when it waits. So a record is written whenever a message is
returned to the queue, and before a *suspect* is tried, and a crash is counted when

* an invocation recorded that it tries the message alone, and did not return it: certain, each counts;
* receives are missing between two records: perhaps only a throttled function. It makes a suspect, counted
  once.

So of three crashes at least two have no other explanation. Losing every record loses no job: messages are
tried more often then, and one that still crashes its process becomes a dead letter after `maxReceiveCount`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Protocol, Self

from indexmill.contracts.errors import ErrorCode

KEPT_S: Final = 15 * 86_400
"""Longer than a queue keeps a message."""


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """Record of one message, written when it is returned to the queue and before a suspect is tried."""

    released: int = 0
    """Receives that are accounted for."""
    tries: int = 0
    """Tries that ended in order, without success."""
    crashes: int = 0
    begun: bool = False
    """An invocation tries it alone; when the next delivery still reads this, that invocation crashed."""
    last_error: str | None = None

    def counted(self, receive_count: int) -> DeliveryRecord:
        """Return the note at a receive, with what went wrong since it was written."""
        crashes = self.crashes
        if self.begun:
            crashes += 1
        elif receive_count - 1 > self.released:
            crashes = max(crashes, 1)
        return replace(self, released=max(self.released, receive_count - 1), crashes=crashes, begun=False)

    def returned(self, receive_count: int, *, tried: str | None = None) -> DeliveryRecord:
        """Return what to write when it is given back; `tried` is the error of the try, None for a wait."""
        tries, error = (self.tries, self.last_error) if tried is None else (self.tries + 1, tried)
        return replace(self, released=receive_count, tries=tries, begun=False, last_error=error)

    def taken(self) -> DeliveryRecord:
        """Return what to write before it is tried alone."""
        return replace(self, begun=True, last_error=_crash_free(self.last_error))

    def out_of_time(self) -> DeliveryRecord:
        """Return what to write when its try is about to be cut off."""
        return replace(self, begun=True, last_error=ErrorCode.TIMED_OUT)


class DeliveryLog(Protocol):
    """Keeps notes by SQS message id, for weeks. It may forget, and never raises."""

    def read(self, message_ids: Sequence[str]) -> Mapping[str, DeliveryRecord]:
        """Return the notes that are known; asked only about messages that were received before."""
        ...

    def write(self, notes: Mapping[str, DeliveryRecord]) -> None:
        """Replace the notes of these messages, in one call."""
        ...


class SuspectTry:
    """Context of one suspect's try: a time-out inside it is recorded before the process ends."""

    def __init__(
        self,
        write: Callable[[str, DeliveryRecord], None],
        message_id: str,
        note: DeliveryRecord,
        *,
        after_s: float,
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
        """End the try; records written from now on follow those of the timer."""
        self._timer.cancel()
        self._timer.join()


def _crash_free(error: str | None) -> str | None:
    """Drop a time-out: the coming try records its own."""
    return None if error == ErrorCode.TIMED_OUT else error
