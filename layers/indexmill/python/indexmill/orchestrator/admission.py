"""Who may start when: the limits of a caller by its tier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """How many jobs may be dispatched and not yet ended."""

    per_caller: int = 1_000_000
    """Of one caller."""
