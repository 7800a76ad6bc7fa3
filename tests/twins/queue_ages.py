"""QueueAges in memory."""

from __future__ import annotations

from indexmill.platform.limits.store import NOTE_KNOWN_S
from indexmill.platform.time import Clock


class InMemoryQueueAges:
    """Notes by stage."""

    def __init__(self, clock: Clock) -> None:
        """Nothing is noted yet."""
        self._clock = clock
        self.notes: dict[str, tuple[float, float]] = {}
        """Age, and when it was noted."""

    def note(self, stage: str, age_s: float) -> None:
        """Note the age, unless a higher one was noted a moment ago."""
        now = self._clock.now().timestamp()
        higher, at = self.notes.get(stage, (0.0, 0.0))
        if age_s >= higher or at < now - 15:
            self.notes[stage] = (age_s, now)

    def oldest(self, stage: str) -> float:
        """Return the noted age, 0 for none or an old one."""
        age_s, at = self.notes.get(stage, (0.0, 0.0))
        return age_s if at >= self._clock.now().timestamp() - NOTE_KNOWN_S else 0.0
