"""Ranking: BM25 in Lucene's variant, and the order of what a keyword list and a vector list found.

The statements of the Postgres index have the rest of the formula: what a term's count in a chunk brings.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from indexmill.embedding.ports import Candidate, Lists

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


STEPS: Final = 1 << 30
"""Part of the largest weight that a term adds to a score is a whole number of such steps.

A sum of whole numbers is the same in every order of its parts. That of floats is not: its last digit would
depend on the plan, and so on the size of other corpora, and chunks with equal scores would change places.
"""


def step(weight: Mapping[int, float]) -> float:
    """Return the least difference between two scores of a question with these weights."""
    return max(weight.values(), default=1.0) / STEPS


VECTOR_WEIGHT: Final = 0.3
"""For small models, which find less than BM25 does; that of the keywords is the rest."""
_LEAST_SCORE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class Order:
    """Settings of an order that is made of the candidates of both lists."""

    hybrid: bool
    """Whether both lists were asked for; else the one there is keeps its order."""
    vector_weight: float = VECTOR_WEIGHT
    min_similarity: float | None = None
    min_bm25: float | None = None
    one_per_document: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """Place of a chunk in one list."""

    score: float
    """BM25, or the cosine similarity."""
    rank: int
    """From 1."""
    normalized: float
    """The score between the list's lowest, 0, and its highest, 1."""


@dataclass(slots=True)
class Ranked:
    """A chunk in the order of the results; at least one list has it."""

    chunk_id: str
    document: str
    score: float
    """Above 0, at most 1."""
    keyword: Part | None = None
    vector: Part | None = None
    relevance: float | None = None
    """Score by a reranker."""


def ordered(lists: Lists, order: Order) -> list[Ranked]:
    """Return the chunks of both lists, best first; equal ones by chunk id.

    In one list alone a score is the share of BM25's ceiling, or the cosine. Else it is the mean of what both
    lists say, between 0 for their last and 1 for their first candidate, weighted as `weights_of` says; a
    chunk that a list does not have counts 0 there. A lower bound takes a chunk out of its list, and changes
    no score.
    """
    keyword_weight, vector_weight = weights_of(lists, order)
    found: dict[str, Ranked] = {}
    for candidate, part in _parts(lists.keyword, order.min_bm25):
        score = keyword_weight * part.normalized if order.hybrid else part.score / lists.ceiling
        found[candidate.chunk_id] = Ranked(*candidate[:2], score, keyword=part)
    for candidate, part in _parts(lists.vector, order.min_similarity):
        score = vector_weight * part.normalized if order.hybrid else part.score
        ranked = found.setdefault(candidate.chunk_id, Ranked(*candidate[:2], 0.0))
        ranked.score += score
        ranked.vector = part
    best = sorted(found.values(), key=lambda each: (-each.score, each.chunk_id))
    for each in best:
        each.score = min(1.0, max(each.score, _LEAST_SCORE))
    return _first_of_documents(best) if order.one_per_document else best


def _first_of_documents(best: Sequence[Ranked]) -> list[Ranked]:
    first: dict[str, Ranked] = {}
    for each in best:
        first.setdefault(each.document, each)
    return list(first.values())


def reordered(ranked: Sequence[Ranked], relevances: Sequence[float]) -> list[Ranked]:
    """Return the chunks in the order of a reranker's scores, which become theirs; equal ones by chunk id.

    Scores that are not between 0 and 1 are taken as logits, all of them.
    """
    logits = any(not 0 <= relevance <= 1 for relevance in relevances)
    for each, relevance in zip(ranked, relevances, strict=True):
        each.relevance = relevance
        score = _logistic(relevance) if logits else relevance
        each.score = min(1.0, max(score, _LEAST_SCORE))
    return sorted(ranked, key=lambda each: (-(each.relevance or 0.0), each.chunk_id))


def _logistic(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def weights_of(lists: Lists, order: Order) -> tuple[float, float]:
    """Return the weights of the keyword list and of the vector list: an empty one leaves all to the other."""
    if not lists.vector:
        return 1.0, 0.0
    if not lists.keyword:
        return 0.0, 1.0
    return 1.0 - order.vector_weight, order.vector_weight


def _parts(candidates: Sequence[Candidate], least: float | None) -> Iterator[tuple[Candidate, Part]]:
    """Yield what a list says of each candidate that reaches `least`. All of a constant list are its first."""
    if not candidates:
        return
    highest, lowest = candidates[0].score, candidates[-1].score
    spread = highest - lowest
    for rank, candidate in enumerate(candidates, 1):
        if least is not None and candidate.score < least:
            return
        normalized = (candidate.score - lowest) / spread if spread > 0 else 1.0
        yield candidate, Part(candidate.score, rank, normalized)
