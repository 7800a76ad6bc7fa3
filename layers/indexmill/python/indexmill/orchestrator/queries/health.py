"""Health of the service, readable without a key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from indexmill.contracts.errors import TransientError
from indexmill.contracts.job import Health
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.queries.jobs import reasons_by_stage
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.platform.aws.state_table import StoreUnavailable
from indexmill.platform.limits.enforcer import ActiveCallers
from indexmill.platform.time import Clock
from indexmill.version import VERSION

CACHED_S: Final = 10.0


@dataclass(slots=True)
class ReadHealth:
    """Looks at most every `CACHED_S` seconds, however often it is asked: it needs no key."""

    store: JobStore
    active: ActiveCallers
    """Of the process: maintenance is what its requests are refused for."""
    clock: Clock
    release: str = ""
    _known: Health | TransientError | None = None
    _until_s: float = -math.inf

    def __call__(self) -> Health:
        """Return the health; raises TransientError(database_unavailable): then no job can be submitted."""
        if self.clock.monotonic() >= self._until_s:
            try:
                self._known = self._read()
            except TransientError as error:
                self._known = error
            self._until_s = self.clock.monotonic() + CACHED_S
        if isinstance(self._known, Health):
            return self._known
        assert self._known is not None  # noqa: S101 - for mypy: it was read above
        raise TransientError(self._known.code, self._known.message, retry_after=self._known.retry_after)

    def _read(self) -> Health:
        shared = self._read_limits()
        reasons, other_model = self.store.read(lambda tx: (reasons_by_stage(tx), tx.other_model()))
        degraded = "degraded" if reasons or not shared else "ok"
        return Health(
            status="maintenance" if self.active.maintenance is not None else degraded,
            version=VERSION,
            release=self.release,
            stages={stage.name: reasons.get(stage.name, "up") for stage in STAGES},
            limits="shared" if shared else "local",
            other_model=other_model,
            checked_at=self.clock.now(),
        )

    def _read_limits(self) -> bool:
        """Read what concerns every caller; return whether limits are shared."""
        try:
            self.active.refresh(0.0)
        except StoreUnavailable:
            return False
        return True
