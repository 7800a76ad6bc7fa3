"""BM25 in Lucene's variant: what the in-memory index computes and the SQL of the real one spells out."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


def length_norm(words: float, average: float) -> float:
    """Return what a term's count is damped by in a chunk of `words` words."""
    return K1 * (1 - B + B * words / average)


def saturation(count: int, norm: float) -> float:
    """Return the share of its weight that a term occurring `count` times brings, below 1."""
    return count / (count + norm)
