"""Messages as a use case gets them from a queue, and what it says about each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Delivery(Generic[M]):
    """One received message."""

    message: M
    receive_count: int
    """How often the queue has handed it out, this time included."""
    deadline: float
    """Monotonic second at which the invocation must be finished."""


@dataclass(frozen=True, slots=True)
class Done:
    """The message's work is finished and reported: it leaves the queue."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The message goes back and is seen again after `after_s` seconds."""

    after_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class Poison:
    """The message can never be handled: it goes to the dead letters at once."""

    reason: str


Outcome = Done | Retry | Poison


BatchUseCase = Callable[[Sequence[Delivery[M]]], Sequence[Outcome]]
"""Handles a whole batch and returns one outcome per delivery, in order. Raises only on a defect."""
