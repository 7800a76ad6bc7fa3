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

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from indexmill.contracts.errors import ErrorCode
from indexmill.platform.aws.clients import CallLimits
from indexmill.platform.aws.state_table import Item, StateTable, StoreUnavailable
from indexmill.platform.time import Clock

KEPT_S: Final = 15 * 86_400
"""Longer than a queue keeps a message."""
_LIMITS: Final = CallLimits(answer_s=2.0)
_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """State of a message when it was last returned to the queue, or before it was tried alone."""

    receives: int = 0
    """Receives that are explained."""
    tries: int = 0
    """Unsuccessful tries that returned an outcome."""
    crashes: int = 0
    tried_alone: bool = False
    """Written before a suspect's try; if the next delivery reads it, the invocation crashed."""
    last_error: str | None = None
    resume: str | None = None
    """Begin of the next try, as the use case wrote it."""

    def after_receive(self, receive_count: int) -> DeliveryRecord:
        """Return the record at a receive, with the crashes since it was written."""
        crashes = self.crashes
        if self.tried_alone:
            crashes += 1
        elif receive_count - 1 > self.receives:
            crashes = max(crashes, 1)
        return replace(
            self, receives=max(self.receives, receive_count - 1), crashes=crashes, tried_alone=False
        )

    def after_return(
        self, receive_count: int, *, tried: str | None = None, resume: str | None = None
    ) -> DeliveryRecord:
        """Return the record at a return to the queue; `tried` is the error of the try, None for a wait."""
        tries, error = (self.tries, self.last_error) if tried is None else (self.tries + 1, tried)
        return DeliveryRecord(receive_count, tries, self.crashes, last_error=error, resume=resume)

    def before_lone_try(self) -> DeliveryRecord:
        """Return the record to write before a suspect is tried."""
        return replace(self, tried_alone=True, last_error=_crash_free(self.last_error))

    def after_timeout(self) -> DeliveryRecord:
        """Return the record to write when the function is about to be stopped during that try."""
        return replace(self, tried_alone=True, last_error=ErrorCode.TIMED_OUT)


class DeliveryLog:
    """Items "release#<SQS message id>" of the state table, kept for 15 days.

    Records that cannot be read or written are lost, which costs messages more tries and no job: so errors are
    logged and ignored.
    """

    def __init__(self, table: str, clock: Clock, dynamodb: Any | None = None) -> None:
        """`dynamodb` is a low-level client; one is made on first use when it is missing."""
        self._table = StateTable(table, clock, dynamodb, limits=_LIMITS)

    def read(self, message_ids: Sequence[str]) -> Mapping[str, DeliveryRecord]:
        """Return the known records of messages that were received before."""
        try:
            found = self._table.read([f"release#{each}" for each in message_ids], partial=True)
            return {key.partition("#")[2]: _record(item) for key, item in found.items()}
        except (StoreUnavailable, KeyError, ValueError):
            _LOG.warning("delivery records cannot be read", exc_info=True)
            return {}

    def write(self, entries: Mapping[str, DeliveryRecord]) -> None:
        """Replace the records of these messages, in one call."""
        end = {"expires_at": int(self._table.now()) + KEPT_S}
        try:
            self._table.write({f"release#{each}": {**_item(entry), **end} for each, entry in entries.items()})
        except StoreUnavailable:
            _LOG.warning("delivery records cannot be written", exc_info=True)


def _item(entry: DeliveryRecord) -> Item:
    texts = {"last_error": entry.last_error, "resume": entry.resume}
    return {
        "released": entry.receives,
        "tries": entry.tries,
        "crashes": entry.crashes,
        "begun": entry.tried_alone,
        **{name: text for name, text in texts.items() if text is not None},
    }


def _record(item: Item) -> DeliveryRecord:
    return DeliveryRecord(
        receives=int(item["released"]),
        tries=int(item["tries"]),
        crashes=int(item["crashes"]),
        tried_alone=bool(item["begun"]),
        last_error=item.get("last_error"),
        resume=item.get("resume"),
    )


class SuspectTry:
    """Context of one suspect's try; a crash or time-out inside it is on record afterwards."""

    def __init__(
        self,
        write: Callable[[str, DeliveryRecord], None],
        message_id: str,
        entry: DeliveryRecord,
        *,
        after_s: float,
    ) -> None:
        """After `after_s` seconds the function is about to be stopped."""
        self._write = write
        self._message_id = message_id
        self._entry = entry
        self._timer = threading.Timer(max(0.0, after_s), write, (message_id, entry.after_timeout()))
        # A thread that waits must not keep the process.
        self._timer.daemon = True

    def __enter__(self) -> Self:
        """Write that the try begins."""
        self._write(self._message_id, self._entry.before_lone_try())
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
