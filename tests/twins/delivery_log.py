"""DeliveryLog in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from indexmill.platform.consumer.delivery_log import KEPT_S, DeliveryRecord
from indexmill.platform.time import Clock
from tests.twins.clock import FrozenClock


class InMemoryDeliveryLog:
    """A dictionary; `unavailable` loses writes and returns nothing. `reads` and `writes` count calls."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Knows nothing yet."""
        self._clock = clock or FrozenClock()
        self._entries: dict[str, tuple[DeliveryRecord, float]] = {}
        self.unavailable = False
        self.reads = 0
        self.writes = 0

    def read(self, message_ids: Sequence[str]) -> Mapping[str, DeliveryRecord]:
        """Return what is known of these messages."""
        self.reads += 1
        now = self._clock.now().timestamp()
        known = {
            key: self._entries[key] for key in message_ids if key in self._entries and not self.unavailable
        }
        return {key: entry for key, (entry, expires_at) in known.items() if expires_at > now}

    def write(self, entries: Mapping[str, DeliveryRecord]) -> None:
        """Keep the records."""
        self.writes += 1
        if not self.unavailable:
            expires_at = self._clock.now().timestamp() + KEPT_S
            self._entries |= {key: (entry, expires_at) for key, entry in entries.items()}

    def purge(self) -> None:
        """Forget everything."""
        self._entries.clear()
