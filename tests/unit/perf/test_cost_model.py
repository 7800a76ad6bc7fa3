"""A million jobs cost what the cost model says; durations on AWS are assumed, calls are counted."""

from __future__ import annotations

import pytest

from indexmill.contracts.cost import Prices
from tests.perf.cost_model import ASSUMED, CEILINGS, COUNTED, Duration, cost, gb_seconds, memory_gb, report
from tests.perf.counted_calls import MODES


@pytest.mark.parametrize("mode", CEILINGS)
def test_a_million_jobs_cost_no_more_than_the_ceiling(mode: str) -> None:
    total = sum(cost(mode).values())
    aim, ceiling = CEILINGS[mode]
    assert total <= ceiling, report()
    # A ceiling far above the cost would let it rise unseen.
    assert total > ceiling - max(0.5, 0.05 * ceiling), report()
    assert f"aim ${aim:.2f}: {'reached' if total <= aim else 'NOT reached'}" in report()


def test_each_mode_is_counted_and_each_charge_has_its_price() -> None:
    assert COUNTED.keys() == MODES.keys()
    none = Prices(**dict.fromkeys(Prices.model_fields, 0))
    assert sum(cost("long", none).values()) == 0
    parts = cost("single")
    assert (parts["API requests"], parts["SQS"], parts["S3"]) == pytest.approx((3.5, 7.2, 5.0))


def test_durations_are_charged_with_the_memory_of_the_template() -> None:
    memory = memory_gb()
    assert memory.keys() == ASSUMED.keys()
    assert gb_seconds("full")["ScraperWorker"] == pytest.approx(memory["ScraperWorker"] * 1.5 / 10)
    # Three batches of results for a batch of jobs.
    assert gb_seconds("single")["OrchestratorResults"] == pytest.approx(memory["OrchestratorResults"] * 0.09)


def test_a_duration_is_on_the_line_through_one_and_ten_messages() -> None:
    duration = Duration(100, 190, "")
    assert [duration.of(messages) for messages in (1, 4, 10)] == [100, 130, 190]
