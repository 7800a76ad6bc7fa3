"""A progress board in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexmill.platform.progress import WorkProgress
from indexmill.platform.time import Clock

_KEPT_S = 24 * 3600


@dataclass
class InMemoryProgress:
    """ProgressBoard without a table; `unavailable` makes it show nothing. `writes` is what was ever put."""

    clock: Clock
    unavailable: bool = False
    writes: list[tuple[str, WorkProgress]] = field(default_factory=list)
    reads: int = 0
    _shown: dict[str, tuple[WorkProgress, float]] = field(default_factory=dict)

    def put(self, job_id: str, progress: WorkProgress) -> None:
        """Show `progress` for 24 hours."""
        if not self.unavailable:
            self.writes.append((job_id, progress))
            self._shown[job_id] = (progress, self.clock.monotonic() + _KEPT_S)

    def get(self, job_id: str) -> WorkProgress | None:
        """Return what is shown."""
        self.reads += 1
        found = None if self.unavailable else self._shown.get(job_id)
        return found[0] if found and found[1] > self.clock.monotonic() else None
