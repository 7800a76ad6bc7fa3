"""Keyed draws: a random number for each named decision, independent of how many decisions came before."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Draws:
    """Decisions of one order. One more message on one side shifts no decision about another."""

    seed: int
    order: int

    def number(self, *key: object) -> float:
        """Return a number in [0, 1) for `key`, the same in every process."""
        text = repr((self.seed, self.order, *key)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest()) / 2**56

    def chance(self, probability: float, *key: object) -> bool:
        """Return True with `probability`."""
        return self.number(*key) < probability

    def pick(self, choices: Sequence[T], *key: object) -> T:
        """Return one of `choices`."""
        return choices[int(self.number(*key) * len(choices))]

    def weighted(self, choices: Sequence[tuple[T, float]], *key: object) -> T:
        """Return one of `choices`, given with their weights."""
        left = self.number(*key) * sum(weight for _, weight in choices)
        for choice, weight in choices:
            left -= weight
            if left < 0:
                return choice
        return choices[-1][0]
