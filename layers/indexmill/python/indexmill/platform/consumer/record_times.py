"""Durations of records, as measured in this process."""

from __future__ import annotations

from collections import deque
from typing import Final

_REMEMBERED: Final = 100
_SHARE: Final = 0.5


class RecordTimes:
    """Says whether there is time for another record, by the last hundred that this process saw."""

    def __init__(self, guess_s: float) -> None:
        """`guess_s` is used until a record was measured, and is the minimum afterwards."""
        self._guess_s = guess_s
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._whole_s = 0.0

    def began(self, left_s: float) -> None:
        """Start an invocation with `left_s` seconds left."""
        self._whole_s = max(self._whole_s, left_s)

    def add(self, seconds: float) -> None:
        """Remember how long a record took."""
        self._seconds.append(seconds)

    def suffices(self, left_s: float) -> bool:
        """Return whether a record that begins now is almost certainly finished in `left_s` seconds.

        The longest of a hundred approximates the 99th percentile. Half an invocation always suffices: else
        records as long as an invocation would never be started.
        """
        longest = max(self._guess_s, *self._seconds) if self._seconds else self._guess_s
        return left_s >= min(longest, _SHARE * self._whole_s)
