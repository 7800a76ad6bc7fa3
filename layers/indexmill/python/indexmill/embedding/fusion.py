"""Reciprocal rank fusion of two lists whose scores have different units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

DEPTH: Final = 100
"""How many candidates each list gives."""
RANK_OFFSET: Final = 60
KEYWORD_WEIGHT: Final = 1.0
VECTOR_WEIGHT: Final = 0.5
"""Half: the small models that this is used with find less than BM25 does."""
_LEAST_SCORE: Final = 1e-6


def fuse(
    keyword: Sequence[int],
    vector: Sequence[int],
    *,
    keyword_weight: float = KEYWORD_WEIGHT,
    vector_weight: float = VECTOR_WEIGHT,
) -> list[tuple[int, float]]:
    """Return the ids of both lists, best first, with scores above 0 and at most 1 (first in both lists).

    An id's score is the sum of weight / (60 + rank) over the lists that have it, divided by the highest
    possible sum. Equal scores keep the order of the ids.
    """
    scores: dict[int, float] = {}
    for weight, ranked in ((keyword_weight, keyword), (vector_weight, vector)):
        for rank, found in enumerate(ranked, 1):
            scores[found] = scores.get(found, 0.0) + weight / (RANK_OFFSET + rank)
    highest = (keyword_weight + vector_weight) / (RANK_OFFSET + 1)
    return [
        (found, min(1.0, score / highest))
        for found, score in sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))
    ]


def similarity_score(cosine: float) -> float:
    """Return the score of a hit that only its vector found: the cosine, or almost 0 where it points away."""
    return min(1.0, max(cosine, _LEAST_SCORE))
