"""Retry policy of a stage: number of tries and back-off."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Self

from indexmill.contracts.pipeline import Stage


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """One first try plus `max_retries` more, spaced by exponential back-off with full jitter."""

    max_retries: int
    base_s: float = 1.0
    max_backoff_s: float = 300.0

    @classmethod
    def of(cls, stage: Stage) -> Self:
        """Return the policy of a stage's row."""
        return cls(stage.max_retries, max_backoff_s=stage.max_backoff_s)

    @property
    def max_tries(self) -> int:
        """Tries in all."""
        return self.max_retries + 1

    def delay(self, tries: int, *, retry_after: int | None = None, rng: random.Random | None = None) -> float:
        """Return the seconds to wait after try number `tries` (from 1) failed.

        `retry_after` is what the other side asked for; it is honoured as the least wait.
        """
        ceiling = min(self.max_backoff_s, self.base_s * 2 ** (tries - 1))
        # Spreads retries; nothing secret depends on it.
        jittered = (rng or random).uniform(0, ceiling)
        return max(jittered, float(retry_after or 0))
