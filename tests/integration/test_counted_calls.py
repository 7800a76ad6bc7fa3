"""The calls that the cost model computes with are those of a running stack."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from tests.perf.cost_model import COUNTED
from tests.perf.counted_calls import count_all

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240)]

SHARE = 0.15
NEARLY = 0.05
"""Of a request: the sweeper may run meanwhile."""
ROBOTS = 0.2
"""Reads of DynamoDB: a new environment reads robots.txt there once, and load decides how many there are."""


def test_a_running_stack_makes_the_calls_of_the_cost_model() -> None:
    counted = {mode: asdict(calls) for mode, calls in count_all().items()}
    expected = {mode: asdict(calls) for mode, calls in COUNTED.items()}
    different = {
        (mode, name): (value, expected[mode][name])
        for mode, calls in counted.items()
        for name, value in calls.items()
        if value
        != pytest.approx(expected[mode][name], rel=SHARE, abs=ROBOTS if name == "dynamodb_read" else NEARLY)
    }
    assert counted.keys() == expected.keys()
    assert different == {}, "python -m tests.perf.counted_calls prints the new table"
