"""No order of deliveries, deaths and delays loses a job; and the first design's lost job is found."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from indexmill.platform.adapters.postgres import Database
from tests.faults.model.first_design import FirstDesign
from tests.faults.model.grounds import postgres, twins
from tests.faults.model.machine import machine
from tests.faults.model.product import Product
from tests.faults.model.system import System


def run(make: Callable[[], System], examples: int, steps: int = 25) -> None:
    """Try `examples` orders, the same ones each time."""
    run_state_machine_as_test(
        machine(make),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


def test_no_order_of_events_loses_a_job_on_the_twins() -> None:
    run(lambda: Product(twins()), 300)


def test_no_order_of_events_loses_a_job_on_postgres(database: Database) -> None:
    run(lambda: Product(postgres(database)), 50)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_on_the_twins() -> None:
    run(lambda: Product(twins()), int(os.environ.get("MODEL_EXAMPLES", "2000")), steps=40)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_on_postgres(database: Database) -> None:
    run(lambda: Product(postgres(database)), int(os.environ.get("MODEL_EXAMPLES", "2000")), steps=40)


def test_the_model_finds_the_job_that_the_first_design_loses() -> None:
    with pytest.raises(AssertionError, match="stuck"):
        run(FirstDesign, 300)
