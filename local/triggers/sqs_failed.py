"""Messages of failed invocations, which new code of the function gets at once.

On AWS such a message is hidden until its queue's visibility timeout, and each receive counts towards the
three after which its worker gives it up. Here too, as long as nothing changes. But a developer who saved a
mistake would wait minutes to see the correction, and three mistakes would cost the job: an edit makes the
messages visible, and those receives are not counted. After a failed import, which every message fails with,
the messages are visible without an edit, and the source pauses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from local.triggers.sqs_events import Message

LOOK_S: Final = 0.25
"""Interval between two looks at the code while messages of failed invocations are hidden."""
_IMPORT_PAUSE_S: Final = (2.0, 300.0)
"""Pause after a failed import, doubled each time: code that stays broken for a night uses up no message's
receives."""
_COUNT: Final = "ApproximateReceiveCount"


class FailedMessages:
    """Failed messages of one event source: receipts to give back, and receives that are not counted."""

    def __init__(self, code_version: Callable[[], int | None]) -> None:
        """`code_version` grows with each edit of the function; it is None where edits are not watched."""
        self.version = code_version
        self._hidden: dict[str, tuple[str, int]] = {}
        """Receipt handle and version of the failed code, by message id."""
        self._failures: dict[str, int] = {}
        self._uncounted: dict[str, int] = {}
        self._broken: int | None = None
        """Version of the code that could not be imported."""
        self._pause_s = 0.0
        self._paused_until = 0.0

    @property
    def awaits_edit(self) -> bool:
        """Return whether an edit would change something: a message is hidden, or a failed import pauses."""
        return bool(self._hidden) or self._broken is not None

    def add(self, messages: Iterable[Message], version: int | None) -> None:
        """Note messages that code of `version` failed with; None where no edit will be noticed."""
        if version is None:
            return
        for message in messages:
            name = message["MessageId"]
            self._hidden[name] = (message["ReceiptHandle"], version)
            self._failures[name] = self._failures.get(name, 0) + 1

    def import_failed(self, messages: Sequence[Message], version: int | None) -> list[str]:
        """Return the receipt handles to give back at once, and pause; the next edit ends the pause."""
        if version is None:
            return []
        low, high = _IMPORT_PAUSE_S
        self._broken, self._pause_s = version, min(2 * self._pause_s or low, high)
        self._paused_until = time.monotonic() + self._pause_s
        return self._forgive(message["MessageId"] for message in messages)

    def edited(self) -> list[str]:
        """Return the receipt handles of the messages that failed with code which is no more."""
        version = self.version()
        if self._broken not in (None, version):
            self.imported()
        return self._forgive([name for name, (_, failed) in self._hidden.items() if failed != version])

    def all(self) -> list[str]:
        """Return the receipt handles of all failed messages."""
        return self._forgive(list(self._hidden))

    def discard(self, messages: Iterable[Message]) -> None:
        """Forget messages that are done."""
        for message in messages:
            for known in (self._hidden, self._failures, self._uncounted):
                known.pop(message["MessageId"], None)

    def imported(self) -> None:
        """End the pause after a failed import."""
        self._broken, self._pause_s, self._paused_until = None, 0.0, 0.0

    def pause_s(self) -> float:
        """Return the seconds to wait before the next receive."""
        return self._paused_until - time.monotonic()

    def counted(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with the receives that count."""
        if not self._uncounted:
            return list(messages)
        return [self._counted(message) for message in messages]

    def _counted(self, message: Message) -> Message:
        attributes = message.get("Attributes") or {}
        uncounted = self._uncounted.get(message["MessageId"], 0)
        if not uncounted or _COUNT not in attributes:
            return message
        count = max(1, int(attributes[_COUNT]) - uncounted)
        return {**message, "Attributes": {**attributes, _COUNT: str(count)}}

    def _forgive(self, names: Iterable[str]) -> list[str]:
        handles = []
        for name in names:
            if name in self._hidden:
                handles.append(self._hidden.pop(name)[0])
                self._uncounted[name] = self._uncounted.get(name, 0) + self._failures.pop(name)
        return handles
