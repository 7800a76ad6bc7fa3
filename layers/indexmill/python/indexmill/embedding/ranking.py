"""Ranking: BM25 in Lucene's variant, and reciprocal rank fusion of a keyword list and a vector list.

The statements of the Postgres index have the rest of the formula: what a term's count in a chunk brings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

K1: Final = 1.5
B: Final = 0.75


def weights(query: Mapping[int, int], frequency: Mapping[int, float], chunks: int) -> dict[int, float]:
    """Return the weight of each query term that some chunk has: its count in the question times its idf.

    `frequency` is how many of the corpus's `chunks` have the term. The sum of the weights is the score that
    no chunk reaches, however often it repeats the terms.
    """
    found: dict[int, float] = {}
    for term, count in query.items():
        df = min(frequency.get(term, 0.0), float(chunks))
        if df > 0:
            found[term] = count * math.log1p((chunks - df + 0.5) / (df + 0.5))
    return found


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
