"""Ports of request limits and backpressure: what all processes share of callers, maintenance and load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from indexmill.platform.limits.window import Admission, Window

NOTE_KNOWN_S: Final = 60.0
"""An older note says nothing: workers renew what is still true. Those of a stage that is switched off receive
nothing, so then the depth alone counts."""


class StoreUnavailable(Exception):
    """The store did not answer in time, or not usefully."""


@dataclass(frozen=True, slots=True)
class Shared:
    """State that concerns every caller of a service."""

    active: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Callers by bucket and by the ten minutes of their last request."""
    maintenance: str | None = None
    """Message to callers during maintenance."""


class LimitStore(Protocol):
    """Every method raises StoreUnavailable."""

    def admit(self, key: str, admission: Admission) -> tuple[bool, Window | None]:
        """Count a request if the admission's condition holds; one atomic step.

        Returns whether it was counted, and the window before it, None for none.
        """
        ...

    def forget(self, key: str, slots: Sequence[int]) -> None:
        """Remove slots that have left the window."""
        ...

    def is_blocked(self, key: str) -> bool:
        """Return whether the caller is blocked; the answer may be a second old."""
        ...

    def move_active(
        self, service: str, bucket: str, old: int | None, new: int, over: Sequence[int]
    ) -> Mapping[int, int]:
        """Count an active caller in the ten minutes `new`, no longer in `old`, and remove those in `over`.

        Returns the bucket's counters.
        """
        ...

    def shared(self, service: str) -> Shared:
        """Return what concerns every caller."""
        ...

    def read(
        self, keys: Sequence[str], services: Sequence[str]
    ) -> tuple[dict[str, Window], dict[str, Shared]]:
        """Return the windows that exist, and what concerns every caller of each service."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """Work that waits: how much, and for how many seconds the oldest of it."""

    depth: int
    age_s: float = 0.0


class QueueAges(Protocol):
    """Ages of the queues' oldest messages, as those who receive messages see them. Never raises."""

    def note(self, stage: str, age_s: float) -> None:
        """Note the age of a stage's queue, unless a higher one was noted a moment ago."""
        ...

    def oldest(self, stage: str) -> float:
        """Return the noted age; 0 for none, for one of more than NOTE_KNOWN_S ago, and when unavailable."""
        ...
