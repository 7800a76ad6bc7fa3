"""Backpressure: new work is refused while too much of it waits, or waits too long already.

Callers of lower tiers are refused first: the room that they leave is for the others.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Protocol

from pydantic import Field

from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import FREE, CallerContext, tier_of
from indexmill.platform.observability import Observability
from indexmill.platform.settings import FunctionSettings
from indexmill.platform.time import Clock

SHARES: Final[Mapping[str, float]] = MappingProxyType({FREE: 0.6, "pro": 0.8, "enterprise": 1.0})
"""Of the bounds, by tier; the system's own callers have the highest one."""
RETRY_AFTER_S: Final = 30
NOTED_FROM_S: Final = 10.0
"""A queue whose messages are younger has no note of its age."""
NOTED_EVERY_S: Final = 5.0
NOTE_KNOWN_S: Final = 60.0
"""An older note says nothing: workers renew what is still true. Those of a stage that is switched off receive
nothing, so then the depth alone counts."""
_KNOWN_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Load:
    """Work that waits: how much, and for how many seconds the oldest of it."""

    depth: int
    age_s: float = 0.0


class LoadSource(Protocol):
    """Tells the load of one queue, or of all jobs."""

    def load(self) -> Load:
        """Return it, counted at least up to the bound. Raises TransientError when it is unknown."""
        ...


class QueueAges(Protocol):
    """Ages of the queues' oldest messages, as those who receive messages see them. Never raises."""

    def note(self, stage: str, age_s: float) -> None:
        """Note the age of a stage's queue, unless a higher one was noted a moment ago."""
        ...

    def oldest(self, stage: str) -> float:
        """Return the noted age; 0 for none, for one of more than NOTE_KNOWN_S ago, and when unavailable."""
        ...


class PressureSettings(FunctionSettings):
    """Bounds of what may wait, which only the template sets, and the table with the queues' ages."""

    state_table: str
    max_queue_depth: int = Field(ge=1)
    max_queue_age_seconds: int = Field(ge=1)


class Backpressure:
    """Refuses requests that add work to one source of load."""

    def __init__(
        self,
        source: LoadSource,
        settings: PressureSettings,
        clock: Clock,
        observability: Observability,
        *,
        routes: Collection[tuple[str, str]],
    ) -> None:
        """`routes` are methods and paths, as routes have them, of the requests that add work."""
        self._source = source
        self._settings = settings
        self._clock = clock
        self._observability = observability
        self._routes = frozenset(routes)
        self._known = Load(0)
        self._read_at = -math.inf

    def __call__(self, ctx: CallerContext, method: str, path: str) -> None:
        """Return, or raise CallerError(queue_saturated)."""
        if (method, path) not in self._routes:
            return
        load, tier = self._load(), "internal" if ctx.internal else tier_of(ctx.tier)
        share = SHARES.get(tier, 1.0)
        deep = load.depth > share * self._settings.max_queue_depth
        old = load.age_s > share * self._settings.max_queue_age_seconds
        if deep or old:
            self._observability.count("queue_saturated_total", tier=tier)
            raise CallerError(
                ErrorCode.QUEUE_SATURATED,
                f"Queue saturated ({load.depth} pending). Try again shortly.",
                retry_after=RETRY_AFTER_S,
            )

    def _load(self) -> Load:
        """Return the load of at most five seconds ago; none while it is unknown: then nothing is refused."""
        now = self._clock.monotonic()
        if now < self._read_at + _KNOWN_S:
            return self._known
        try:
            self._known = self._source.load()
        except TransientError as error:
            self._known = Load(0)
            self._observability.log.warning("queue_depth.unavailable", extra={"code": error.code})
            self._observability.count("queue_depth_unavailable_total")
        # After the read: one that takes long must not be followed by the next one at once.
        self._read_at = self._clock.monotonic()
        return self._known


class AgeNotes:
    """A worker's notes of how long messages waited until their first receive."""

    def __init__(self, stage: str, ages: QueueAges, clock: Clock) -> None:
        """Nothing is noted yet."""
        self._stage = stage
        self._ages = ages
        self._clock = clock
        self._noted_at = -math.inf

    def see(self, sent_ms: Collection[int]) -> None:
        """Note the age of messages that were sent then (milliseconds since 1970), when they are old.

        A message that was received before is none of them: it may have waited for its next try.
        """
        if not sent_ms:
            return
        age_s = self._clock.now().timestamp() - min(sent_ms) / 1000
        if age_s >= NOTED_FROM_S and self._clock.monotonic() >= self._noted_at + NOTED_EVERY_S:
            self._noted_at = self._clock.monotonic()
            self._ages.note(self._stage, age_s)
