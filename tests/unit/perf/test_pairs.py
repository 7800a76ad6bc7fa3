"""The interval of the median of few ratios."""

from __future__ import annotations

import pytest

from tests.perf.pairs import interval


@pytest.mark.parametrize(
    ("count", "low", "high", "sure"), [(5, 1, 5, 0.9375), (8, 2, 7, 0.93), (4, 1, 4, 0.875), (1, 1, 1, 0.0)]
)
def test_the_interval_is_the_narrowest_that_is_sure_enough(
    count: int, low: int, high: int, sure: float
) -> None:
    values = [float(each) for each in range(count, 0, -1)]
    assert interval(values) == (low, high, pytest.approx(sure, abs=0.005))
