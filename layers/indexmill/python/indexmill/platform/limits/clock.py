"""Clock of the request limits: this machine's, corrected by the store's."""

from __future__ import annotations

from typing import Final

from indexmill.platform.time.clock import Clock

_TOLERATED_S: Final = 2.0
_HALF_S: Final = 0.5
"""The store tells whole seconds."""


class StoreClock:
    """Seconds since the epoch. A clock that jumps is corrected with the store's next answer."""

    def __init__(self, clock: Clock) -> None:
        """`clock` is right until the store says otherwise."""
        self._clock = clock
        self._offset = 0.0

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
