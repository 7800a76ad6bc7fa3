"""Polling intervals, on a clock of the test's own."""

from __future__ import annotations

import pytest

from local.compute.process_stats import IdleCpu
from local.triggers.sqs_polling import Concurrency, LongPolling, ShortPolling


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_long_polls_follow_at_once_while_nothing_is_in_flight_and_after_a_full_batch() -> None:
    clock = Clock()
    polling = LongPolling(0.02, clock)
    polling.received(1, 10)
    assert polling.pause_s(in_flight=False) <= 0
    polling.received(10, 10)
    assert polling.pause_s(in_flight=True) <= 0


def test_long_polls_linger_after_a_batch_that_was_not_full_while_one_is_in_flight() -> None:
    clock = Clock()
    polling = LongPolling(0.02, clock)
    polling.received(2, 10)
    assert polling.pause_s(in_flight=True) == pytest.approx(0.02)
    clock.now += 0.015
    assert polling.pause_s(in_flight=True) == pytest.approx(0.005)
    assert polling.pause_s(in_flight=False) <= 0
    clock.now += 0.005
    assert polling.pause_s(in_flight=True) <= 0
    # An empty receive waited at the queue itself.
    polling.received(0, 10)
    assert polling.pause_s(in_flight=True) <= 0


def test_long_polls_without_lingering_follow_at_once() -> None:
    polling = LongPolling(0.0, Clock())
    polling.received(2, 10)
    assert polling.pause_s(in_flight=True) <= 0


def test_short_polls_are_close_together_only_after_traffic_or_a_nudge() -> None:
    clock = Clock()
    polling = ShortPolling(busy_s=0.01, idle_s=0.1, busy_for_s=2.0, clock=clock)
    polling.received(0, 10)
    assert polling.pause_s(in_flight=True) == pytest.approx(0.1)
    polling.nudged()
    assert polling.pause_s(in_flight=True) == pytest.approx(0.01)
    clock.now += 1.5
    polling.received(1, 10)
    clock.now += 1.9
    polling.received(0, 10)
    assert polling.pause_s(in_flight=True) == pytest.approx(0.01)
    clock.now += 0.2
    polling.received(0, 10)
    assert polling.pause_s(in_flight=True) == pytest.approx(0.1)


def test_a_full_batch_is_followed_by_another_short_poll_at_once() -> None:
    polling = ShortPolling(clock=Clock())
    polling.received(10, 10)
    assert polling.pause_s(in_flight=True) == 0


def test_concurrency_follows_backlog_and_errors_between_its_bounds() -> None:
    concurrency = Concurrency(5, start=3)
    assert concurrency.allowed == 3
    for _ in range(4):
        concurrency.batch(10, 10)
    assert concurrency.allowed == 5
    for _ in range(4):
        concurrency.batch(0, 10)
    assert concurrency.allowed == 3
    for _ in range(4):
        concurrency.failed()
    assert concurrency.allowed == 1
    for _ in range(9):
        concurrency.succeeded()
    assert concurrency.allowed == 3


def test_concurrency_grows_only_while_cpu_is_idle_and_shrinks_without() -> None:
    idle: list[float | None] = [0.19, None, 0.5, None, 0.1, 0.04, 0.04]
    concurrency = Concurrency(3, lambda: idle.pop(0))
    seen = []
    while idle:
        concurrency.batch(10, 10)
        seen.append(concurrency.allowed)
    assert seen == [1, 1, 2, 2, 2, 1, 1]


def test_concurrency_grows_when_none_ends_at_once_with_idle_cpu_and_later_without() -> None:
    idle = 0.5
    concurrency = Concurrency(4, lambda: idle)
    concurrency.waited(0.5)
    assert concurrency.allowed == 2
    idle = 0.0
    for _ in range(3):
        concurrency.waited(0.5)
    assert concurrency.allowed == 2
    concurrency.succeeded()
    for _ in range(3):
        concurrency.waited(0.5)
    assert concurrency.allowed == 2
    concurrency.waited(0.5)
    assert concurrency.allowed == 3


def test_idle_cpu_is_a_share_since_the_last_look() -> None:
    clock = Clock()
    look = IdleCpu(every_s=0.05, clock=clock)
    assert look() is None
    clock.now += 0.06
    share = look()
    assert share is not None
    assert 0 <= share <= 1
    assert look() is None
