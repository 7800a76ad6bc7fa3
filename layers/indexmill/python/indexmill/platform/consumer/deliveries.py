"""Deliveries of messages to a use case, its outcome for each, and the time that records take."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

M = TypeVar("M")

LONGEST_WAIT_S: Final = 12 * 3600.0 - 900.0
"""A queue hides a message for 12 hours from its receipt on and refuses what would be longer: a quarter of an
hour is what an invocation may have taken by then."""
MOST_CRASHES: Final = 3
"""A message that was there each time when this many invocations ended is given up."""


@dataclass(frozen=True, slots=True)
class Delivery(Generic[M]):
    """One received message."""

    message: M
    receive_count: int
    """How often the queue has delivered it, this time included; not the number of tries."""
    deadline: float
    """Monotonic second at which the invocation must be finished."""
    tries: int = 1
    """Real tries, this one included; waits and crashes are not counted."""
    crashes: int = 0
    """How many invocations that had it crashed or timed out."""
    last_error: str | None = None
    """Code of the last try that failed."""
    resume: str | None = None
    """As the last delivery's `Wait` said it."""
    receipt: str = ""
    """With it the message can be deleted before the batch is finished."""
    least_wait_s: float = 0.0
    """A wait is at least as long: it grows with the time that the message has been coming back."""

    @property
    def is_suspect(self) -> bool:
        """Return whether it may crash its process."""
        return 0 < self.crashes < MOST_CRASHES

    @property
    def is_poison(self) -> bool:
        """Return whether it must not be tried any more: it crashes its process."""
        return self.crashes >= MOST_CRASHES

    def wait(self, seconds: float) -> float:
        """Return how long it really waits when a use case wants `seconds`."""
        return min(max(seconds, self.least_wait_s), LONGEST_WAIT_S)


@dataclass(frozen=True, slots=True)
class Done:
    """The message's work is finished and reported: it leaves the queue."""


@dataclass(frozen=True, slots=True)
class Retry:
    """A try failed: the message goes back and is seen again after `after_s` seconds."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """It was not tried, through no fault of its own: it goes back, and no try is counted."""

    after_s: float
    reason: str
    resume: str | None = None
    """Begin of its next try, for the use case. May be lost."""
    site: str | None = None
    """Site that it waits for."""


@dataclass(frozen=True, slots=True)
class Poison:
    """The message can never be handled: it goes to the dead letters at once."""

    reason: str


Outcome = Done | Retry | Wait | Poison


BatchUseCase = Callable[[Sequence[Delivery[M]]], Sequence[Outcome]]
"""Handles a whole batch and returns one outcome per delivery, in order. Raises only on a defect."""


_REMEMBERED: Final = 100
_SHARE: Final = 0.5


class RecordTimes:
    """Durations of the last hundred records of this process, to decide whether there is time for another."""

    def __init__(self, guess_s: float) -> None:
        """`guess_s` is used until a record was measured, and is the minimum afterwards."""
        self._guess_s = guess_s
        self._seconds: deque[float] = deque(maxlen=_REMEMBERED)
        self._whole_s = 0.0

    def begin(self, left_s: float) -> None:
        """Start an invocation with `left_s` seconds left."""
        self._whole_s = max(self._whole_s, left_s)

    def add(self, seconds: float) -> None:
        """Add the duration of one record."""
        self._seconds.append(seconds)

    def suffices(self, left_s: float) -> bool:
        """Return whether a record that begins now is almost certainly finished in `left_s` seconds.

        The longest of a hundred approximates the 99th percentile. Half an invocation always suffices: else
        records as long as an invocation would never be started.
        """
        longest = max(self._guess_s, *self._seconds) if self._seconds else self._guess_s
        return left_s >= min(longest, _SHARE * self._whole_s)
