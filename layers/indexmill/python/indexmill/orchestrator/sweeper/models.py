"""Documents whose vectors are of another model than the one that embeds now."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from indexmill.orchestrator.store.sweep import SweepStore
from indexmill.orchestrator.sweeper.switches import record_incidents
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock

LOOKED_AT_EVERY_S: Final = 600.0
"""A look reads every document. Each environment begins with one, so that a changed model is seen at once."""


@dataclass(slots=True)
class FindOtherModels:
    """Records an incident for each other model that documents have vectors of, until none has."""

    store: SweepStore
    model: str
    dimension: int
    observability: Observability
    clock: Clock
    _found: int = 0
    _until_s: float = -math.inf

    def __call__(self) -> int:
        """Return how many documents there were at the last look. Raises TransientError."""
        if self.clock.monotonic() >= self._until_s:
            found = self.store.other_models(self.model, self.dimension)
            record_incidents(self.store, self.observability, "other_model", found)
            self._found = sum(detail["documents"] for detail in found.values())
            self._until_s = self.clock.monotonic() + LOOKED_AT_EVERY_S
        return self._found
