"""Fusion of ranked lists, and the parts of BM25."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.embedding import ranking
from indexmill.embedding.ranking import fuse, similarity_score
from tests.twins.vector_index import length_norm, saturation

ranked_lists = st.lists(st.integers(0, 50), unique=True, max_size=40)


def test_first_in_both_lists_scores_one() -> None:
    assert fuse([7, 8], [7, 9])[0] == (7, 1.0)


def test_keywords_weigh_twice_what_vectors_do() -> None:
    assert [found for found, _ in fuse([1], [2])] == [1, 2]
    scores = dict(fuse([1], [2]))
    assert scores[1] == pytest.approx(2 * scores[2]) == pytest.approx(2 / 3)


def test_equal_scores_keep_the_order_of_ids() -> None:
    assert fuse([5, 3], [3, 5], vector_weight=1.0) == fuse([3, 5], [5, 3], vector_weight=1.0)


def test_no_lists_fuse_to_nothing() -> None:
    assert fuse([], []) == []


@given(ranked_lists, ranked_lists)
def test_fused_scores_fall_between_one_and_zero(keyword: list[int], vector: list[int]) -> None:
    fused = fuse(keyword, vector)
    scores = [score for _, score in fused]
    assert {found for found, _ in fused} == {*keyword, *vector}
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)


@given(ranked_lists)
def test_one_list_alone_keeps_its_order(ranked: list[int]) -> None:
    assert [found for found, _ in fuse(ranked, [])] == ranked
    assert [found for found, _ in fuse([], ranked)] == ranked


@pytest.mark.parametrize(("cosine", "score"), [(1.0000001, 1.0), (0.5, 0.5), (-0.5, 1e-6)])
def test_similarity_scores_stay_in_bounds(cosine: float, score: float) -> None:
    assert similarity_score(cosine) == score


def test_weights_are_lucenes_idf_times_the_count_in_the_question() -> None:
    weights = ranking.weights({1: 2, 2: 1, 3: 1}, {1: 3, 2: 10}, 10)
    assert weights == {
        1: pytest.approx(2 * math.log(1 + 7.5 / 3.5)),
        2: pytest.approx(math.log(1 + 0.5 / 10.5)),
    }


def test_saturation_rises_with_the_count_and_falls_with_the_length() -> None:
    short, long = length_norm(50, 100), length_norm(200, 100)
    assert 0 < saturation(1, long) < saturation(1, short) < saturation(5, short) < 1
