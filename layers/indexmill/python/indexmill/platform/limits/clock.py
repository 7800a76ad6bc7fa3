"""Clock of limits that machines share: this machine's, corrected by the store's."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

from indexmill.platform.time import Clock

_TOLERATED_S: Final = 2.0
_HALF_S: Final = 0.5
"""The store tells whole seconds."""


class StoreClock:
    """Seconds since the epoch. A clock that jumps is corrected with the store's next answer."""

    def __init__(self, clock: Clock) -> None:
        """`clock` is right until the store says otherwise."""
        self._clock = clock
        self._offset = 0.0
        self._heard = ""

    def now(self) -> float:
        """Return the time."""
        return self._clock.now().timestamp() + self._offset

    def monotonic(self) -> float:
        """Return seconds that never run backwards."""
        return self._clock.monotonic()

    def heard(self, second: float) -> None:
        """Note that the store answered in this second of its own clock."""
        ahead = self.now() - second
        if not -_TOLERATED_S <= ahead <= 1 + _TOLERATED_S:
            self._offset -= ahead - _HALF_S

    def heard_in(self, answer: Mapping[str, Any]) -> None:
        """Note the time of an answer of DynamoDB, or of its error, as botocore returns it."""
        date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
        if date and date != self._heard:
            self._heard = date
            try:
                self.heard(parsedate_to_datetime(date).timestamp())
            except ValueError:
                return
