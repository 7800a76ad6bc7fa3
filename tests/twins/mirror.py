"""Mirror in memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from indexmill.contracts.errors import ErrorCode, TransientError
from indexmill.orchestrator.store.sweep import CallerRow, Maintenance


@dataclass
class InMemoryMirror:
    """Keeps the latest versions; `broken` makes it unavailable."""

    begun: bool = False
    callers: dict[str, CallerRow] = field(default_factory=dict)
    maintenance: Maintenance | None = None
    broken: bool = False

    def exists(self) -> bool:
        """Return whether it was begun."""
        self._check()
        return self.begun

    def begin(self) -> None:
        """Begin it."""
        self._check()
        self.begun = True

    def put(self, caller: CallerRow) -> None:
        """Keep the row if it is not older."""
        self._check()
        known = self.callers.get(caller.caller_id)
        if known is None or known.version <= caller.version:
            self.callers[caller.caller_id] = caller

    def put_maintenance(self, maintenance: Maintenance) -> None:
        """Keep it if it is not older."""
        self._check()
        if self.maintenance is None or self.maintenance.version <= maintenance.version:
            self.maintenance = maintenance

    def _check(self) -> None:
        if self.broken:
            raise TransientError(ErrorCode.DATABASE_UNAVAILABLE, "The mirror is broken.")
