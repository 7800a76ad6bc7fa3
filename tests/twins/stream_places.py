"""Places of streams counted in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexmill.platform.time import Clock


@dataclass
class InMemoryPlaces:
    """Places without a table; `unavailable` is a count that cannot be read."""

    limit: int
    clock: Clock
    unavailable: bool = False
    taken: dict[str, float] = field(default_factory=dict)
    entered: int = 0

    def enter(self, seconds: float) -> str | None:
        """Take a place."""
        now = self.clock.monotonic()
        self.taken = {place: end for place, end in self.taken.items() if end > now}
        if self.unavailable or len(self.taken) >= self.limit:
            return None
        self.entered += 1
        place = str(self.entered)
        self.taken[place] = now + seconds
        return place

    def leave(self, place: str) -> None:
        """Give it back."""
        self.taken.pop(place, None)
