"""Copy of callers and maintenance in the state table, where every request reads them without Postgres."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from indexmill.orchestrator.store.sweep import CallerRow, Maintenance, SweepStore

_BATCH: Final = 1_000


class Mirror(Protocol):
    """Copy of callers and maintenance. All calls raise TransientError."""

    def exists(self) -> bool:
        """Return whether it was begun and not lost since."""
        ...

    def begin(self) -> None:
        """Record that it was begun."""
        ...

    def put(self, caller: CallerRow) -> None:
        """Copy one row; an older version than the copy's changes nothing."""
        ...

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Copy it likewise."""
        ...


@dataclass(frozen=True, slots=True)
class MirrorCallers:
    """Copies what changed since the last tick, and everything when the copy is lost.

    Two may run at once: of two versions of a row the copy keeps the later one.
    """

    store: SweepStore
    mirror: Mirror

    def __call__(self) -> int:
        """Copy and return how many rows. Raises TransientError: the next tick copies what was not."""
        if not self.mirror.exists():
            self.store.mirror_all()
            self.mirror.begin()
        callers = self.store.unmirrored(_BATCH)
        for caller in callers:
            self.mirror.put(caller)
        if callers:
            self.store.mark_mirrored(callers)
        maintenance = self.store.unmirrored_maintenance()
        if maintenance is not None:
            self.mirror.put_maintenance(maintenance)
            self.store.mark_maintenance_mirrored(maintenance.version)
        return len(callers) + (maintenance is not None)
