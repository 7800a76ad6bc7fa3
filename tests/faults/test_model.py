"""No order of deliveries, deaths and delays loses a job; and the first design's lost job is found."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from indexmill.platform.postgres.database import Database
from tests.faults.model.first_design import FirstDesign
from tests.faults.model.grounds import postgres, twins
from tests.faults.model.machine import machine
from tests.faults.model.product import Product
from tests.faults.model.system import System
from tests.faults.model.weaknesses import WEAKNESSES, Weaken

MANY: Final = int(os.environ.get("MODEL_EXAMPLES", "2000"))

REACHED: Final = (
    "advance",
    "again",  # fenced out by a newer job's end, and sent once more
    "canceled",
    "canceled: refused",  # the publish was faster
    "copy",
    "dead: dead_callback",
    "dead: poison_message",
    "deduplicated",
    "done: published, then failed",
    "done: superseded",
    "done: unchanged",
    "end: done",
    "end: failed",
    "failed: poison_message by dead letter",
    "failed: poison_message by stage",
    "late: an earlier attempt",
    "late: the job has ended",
    "publish: fenced",
    "publish: published",
    "publish: superseded",
    "replayed: fetch",
    "replayed: stored",
    "rescued: lost",
    "rescued: silent",
    "retried",
    "swept: chunking",
    "swept: embedding",
    "swept: scraping",
    "waiting",
)
"""What some of the orders must come to, or they are no proof of anything."""


def run(
    make: Callable[[Counter[str]], System], examples: int, steps: int = 25, *, shrink: bool = True
) -> Counter[str]:
    """Try `examples` orders, the same ones each time, and return how often they reached what."""
    reached: Counter[str] = Counter()
    run_state_machine_as_test(
        machine(lambda: make(reached)),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )
    return reached


def check_reached(reached: Counter[str]) -> None:
    """Fail if there is an outcome that no order came to; 300 orders come to the rarest ten times."""
    assert [outcome for outcome in REACHED if not reached[outcome]] == []


def tell(capsys: pytest.CaptureFixture[str], where: str, reached: Counter[str]) -> None:
    """Print what was reached."""
    with capsys.disabled():
        print(f"\n  {MANY} orders on {where} came to")
        for outcome, count in sorted(reached.items()):
            print(f"  {count:8} {outcome}")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Thousands of jobs end here, and each says so."""
    caplog.set_level(logging.WARNING, "audit")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


def test_no_order_of_events_loses_a_job_on_the_twins() -> None:
    check_reached(run(lambda reached: Product(twins(), reached), 300))


@pytest.mark.timeout(300)
def test_no_order_of_events_loses_a_job_on_postgres(database: Database) -> None:
    run(lambda reached: Product(postgres(database), reached), 100)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_on_the_twins(capsys: pytest.CaptureFixture[str]) -> None:
    reached = run(lambda reached: Product(twins(), reached), MANY, steps=40)
    tell(capsys, "the twins", reached)
    check_reached(reached)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_on_postgres(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    # Shorter ones than on the twins: each step costs Postgres some ten statements.
    reached = run(lambda reached: Product(postgres(database), reached), MANY)
    tell(capsys, "Postgres", reached)
    check_reached(reached)


def test_the_model_finds_the_job_that_the_first_design_loses() -> None:
    with pytest.raises(AssertionError, match="stuck"):
        run(lambda _: FirstDesign(), 300)


@pytest.mark.long
@pytest.mark.parametrize("weaken", WEAKNESSES, ids=lambda weaken: weaken.__name__)
def test_the_model_notices_a_safeguard_that_is_missing(
    weaken: Weaken, monkeypatch: pytest.MonkeyPatch
) -> None:
    weaken(monkeypatch)
    with pytest.raises(AssertionError):
        run(lambda reached: Product(twins(), reached), 1_000, shrink=False)
