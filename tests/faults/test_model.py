"""No order of deliveries, crashes and delays loses a job; and the model finds each missing safeguard."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from indexmill.platform.postgres.database import Database
from tests.faults.model.backends import in_memory, postgres
from tests.faults.model.machine import machine
from tests.faults.model.mutations import (
    MUTATIONS,
    Mutate,
    mark_sent_before_sending,
    never_mark_sent,
    never_send_again,
)
from tests.faults.model.system_under_test import SystemUnderTest

MANY: Final = int(os.environ.get("MODEL_EXAMPLES", "2000"))

REACHED: Final = (
    "advance",
    "redispatch",  # fenced out by a newer job's end
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
"""Outcomes that the orders must reach: without them they would prove nothing."""

QUICK: Final = (mark_sent_before_sending, never_mark_sent, never_send_again)
"""Mutations that a few dozen orders find: also without the long tests the model shows that it can fail."""


def run(
    make: Callable[[Counter[str]], SystemUnderTest], examples: int, steps: int = 25, *, shrink: bool = True
) -> Counter[str]:
    """Run `examples` orders, the same ones each time; return how often each outcome was reached."""
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
    """Fail if no order reached one of the outcomes; 150 orders reach the rarest about five times."""
    assert [outcome for outcome in REACHED if not reached[outcome]] == []


def report(capsys: pytest.CaptureFixture[str], where: str, reached: Counter[str]) -> None:
    """Print what was reached."""
    with capsys.disabled():
        print(f"\n  {MANY} orders on {where} reached")
        for outcome, count in sorted(reached.items()):
            print(f"  {count:8} {outcome}")


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Leave out audit lines: thousands of jobs end here."""
    caplog.set_level(logging.WARNING, "audit")


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


@pytest.mark.direct
@pytest.mark.timeout(300)
def test_no_order_of_events_loses_a_job_in_memory() -> None:
    check_reached(run(lambda reached: SystemUnderTest(in_memory(), reached), 150))


@pytest.mark.timeout(300)
def test_no_order_of_events_loses_a_job_on_postgres(database: Database) -> None:
    run(lambda reached: SystemUnderTest(postgres(database), reached), 20)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_in_memory(capsys: pytest.CaptureFixture[str]) -> None:
    reached = run(lambda reached: SystemUnderTest(in_memory(), reached), MANY, steps=40)
    report(capsys, "in-memory fakes", reached)
    check_reached(reached)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_many_orders_lose_no_job_on_postgres(database: Database, capsys: pytest.CaptureFixture[str]) -> None:
    # Shorter orders than in memory: each step costs Postgres some ten statements.
    reached = run(lambda reached: SystemUnderTest(postgres(database), reached), MANY)
    report(capsys, "Postgres", reached)
    check_reached(reached)


def _marked(mutate: Mutate) -> ParameterSet:
    return pytest.param(mutate, id=mutate.__name__, marks=() if mutate in QUICK else pytest.mark.long)


@pytest.mark.direct
@pytest.mark.parametrize("mutate", [_marked(mutate) for mutate in MUTATIONS])
def test_the_model_finds_a_missing_safeguard(mutate: Mutate, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    with pytest.raises(AssertionError):
        run(lambda reached: SystemUnderTest(in_memory(), reached), 1_000, shrink=False)
