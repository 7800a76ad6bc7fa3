"""Fusion of ranked lists, and the parts of BM25."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.embedding import ranking
from indexmill.embedding.ports import Candidate, Lists
from indexmill.embedding.ranking import Order, ordered
from tests.twins.vector_index import length_norm, saturation

HYBRID = Order(hybrid=True)
Scores = Mapping[str, float]
scores_by_id = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(-1, 30), max_size=40)


def lists(keyword: Scores, vector: Scores, ceiling: float = 40.0) -> Lists:
    """Return both lists, of chunks whose document is the first letter of their id."""
    return Lists(*map(_listed, (keyword, vector)), ceiling, other_model=False)


def _listed(scores: Scores) -> list[Candidate]:
    found = [Candidate(chunk_id, chunk_id[0], score) for chunk_id, score in scores.items()]
    return sorted(found, key=lambda each: (-each.score, each.chunk_id))


def scored(found: Lists, order: Order = HYBRID) -> dict[str, float]:
    return {each.chunk_id: each.score for each in ordered(found, order)}


def test_each_list_counts_between_its_lowest_and_its_highest() -> None:
    found = scored(lists({"a": 9.0, "b": 6.0, "c": 3.0}, {"c": 0.8, "b": 0.5, "d": 0.4}))
    assert found == {
        "a": pytest.approx(0.7),
        "b": pytest.approx(0.7 * 0.5 + 0.3 * 0.25),
        "c": pytest.approx(0.3),
        "d": 1e-6,
    }
    assert list(found) == ["a", "b", "c", "d"]


def test_the_weight_of_vectors_is_a_setting() -> None:
    both = lists({"a": 9.0, "b": 3.0}, {"b": 0.8, "a": 0.5})
    assert [next(iter(scored(both, Order(True, weight)))) for weight in (0.0, 0.4, 0.6, 1.0)] == list("aabb")


def test_an_empty_list_leaves_all_weight_to_the_other() -> None:
    assert scored(lists({}, {"a": 0.75, "b": 0.25, "c": 0.5})) == {"a": 1.0, "c": 0.5, "b": 1e-6}
    assert scored(lists({"a": 8.0, "b": 2.0, "c": 5.0}, {})) == {"a": 1.0, "c": 0.5, "b": 1e-6}
    assert scored(lists({}, {})) == {}


def test_all_of_a_constant_list_are_its_first() -> None:
    assert scored(lists({"b": 4.0, "a": 4.0}, {"c": 0.9, "a": 0.1})) == {
        "a": pytest.approx(0.7),
        "b": pytest.approx(0.7),
        "c": pytest.approx(0.3),
    }
    assert scored(lists({"a": 4.0}, {"a": 0.1})) == {"a": 1.0}


def test_equal_scores_are_in_the_order_of_their_ids() -> None:
    assert list(scored(lists({"c": 4.0, "a": 4.0}, {"b": 0.9, "d": 0.9}, 1), Order(True, 0.5))) == list(
        "abcd"
    )
    assert list(scored(lists({"c": 4.0, "a": 4.0, "b": 5.0}, {}), Order(hybrid=False))) == ["b", "a", "c"]


def test_one_list_alone_keeps_its_own_scores() -> None:
    alone = Order(hybrid=False)
    assert scored(lists({"a": 10.0, "b": 4.0}, {}, ceiling=20.0), alone) == {"a": 0.5, "b": 0.2}
    assert scored(lists({}, {"a": 1.0000001, "b": 0.5, "c": -0.5}), alone) == {"a": 1.0, "b": 0.5, "c": 1e-6}


def test_bounds_take_chunks_out_of_their_list_and_change_no_score() -> None:
    both = lists({"a": 9.0, "b": 6.0, "c": 3.0}, {"c": 0.8, "b": 0.5, "d": 0.4})
    order = Order(True, min_bm25=6.0, min_similarity=0.6)
    assert scored(both, order) == {"a": pytest.approx(0.7), "b": pytest.approx(0.35), "c": pytest.approx(0.3)}
    kept = {
        each.chunk_id: (each.keyword is not None, each.vector is not None) for each in ordered(both, order)
    }
    assert kept == {"a": (True, False), "b": (True, False), "c": (False, True)}


def test_only_the_best_chunk_of_each_document_is_kept() -> None:
    both = lists({"b1": 9.0, "a1": 8.0, "b2": 7.0, "c1": 6.0}, {"a2": 0.9, "c1": 0.1})
    assert list(scored(both, Order(True, one_per_document=True))) == ["b1", "a1", "c1"]


@given(scores_by_id, scores_by_id)
def test_scores_fall_between_one_and_zero(keyword: Scores, vector: Scores) -> None:
    found = scored(lists(keyword, vector))
    assert found.keys() == {*keyword, *vector}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert all(0 < score <= 1 for score in found.values())


@given(scores_by_id)
def test_one_list_alone_keeps_its_order(scores: Scores) -> None:
    order = [each.chunk_id for each in _listed(scores)]
    spread = len({round(score, 6) for score in scores.values()}) == len(scores)
    for found in (lists(scores, {}), lists({}, scores)):
        assert not spread or list(scored(found)) == order


def test_weights_are_lucenes_idf_times_the_count_in_the_question() -> None:
    weights = ranking.weights({1: 2, 2: 1, 3: 1}, {1: 3, 2: 10}, 10)
    assert weights == {
        1: pytest.approx(2 * math.log(1 + 7.5 / 3.5)),
        2: pytest.approx(math.log(1 + 0.5 / 10.5)),
    }


def test_saturation_rises_with_the_count_and_falls_with_the_length() -> None:
    short, long = length_norm(50, 100), length_norm(200, 100)
    assert 0 < saturation(1, long) < saturation(1, short) < saturation(5, short) < 1
