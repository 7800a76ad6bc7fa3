"""Polling intervals, on a clock of the test's own."""

from __future__ import annotations

import pytest

from local.triggers.sqs_polling import Concurrency, LongPolling, ShortPolling


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_long_polls_follow_at_once_after_a_lone_message_or_a_full_batch() -> None:
    clock = Clock()
    polling = LongPolling(0.02, clock)
    polling.received(1, 10)
    assert polling.pause_s() <= 0
    clock.now += 0.01
    polling.received(10, 10)
    assert polling.pause_s() <= 0


def test_long_polls_linger_when_small_batches_follow_closely() -> None:
    clock = Clock()
    polling = LongPolling(0.02, clock)
    polling.received(1, 10)
    clock.now += 0.01
    polling.received(2, 10)
    assert polling.pause_s() == pytest.approx(0.02)
    clock.now += 0.015
    assert polling.pause_s() == pytest.approx(0.005)
    clock.now += 1
    polling.received(1, 10)
    assert polling.pause_s() <= 0


def test_short_polls_are_close_together_only_after_traffic_or_a_nudge() -> None:
    clock = Clock()
    polling = ShortPolling(busy_s=0.01, idle_s=0.1, busy_for_s=2.0, clock=clock)
    polling.received(0, 10)
    assert polling.pause_s() == pytest.approx(0.1)
    polling.nudged()
    assert polling.pause_s() == pytest.approx(0.01)
    clock.now += 1.5
    polling.received(1, 10)
    clock.now += 1.9
    polling.received(0, 10)
    assert polling.pause_s() == pytest.approx(0.01)
    clock.now += 0.2
    polling.received(0, 10)
    assert polling.pause_s() == pytest.approx(0.1)


def test_a_full_batch_is_followed_by_another_short_poll_at_once() -> None:
    polling = ShortPolling(clock=Clock())
    polling.received(10, 10)
    assert polling.pause_s() == 0


def test_concurrency_follows_load_and_errors_between_its_bounds() -> None:
    concurrency = Concurrency(7)
    assert concurrency.allowed == 5
    for _ in range(4):
        concurrency.batch(10, 10)
    assert concurrency.allowed == 7
    for _ in range(4):
        concurrency.batch(0, 10)
    assert concurrency.allowed == 5
    for _ in range(4):
        concurrency.failed()
    assert concurrency.allowed == 1
    for _ in range(9):
        concurrency.succeeded()
    assert concurrency.allowed == 5
    assert (Concurrency(2).allowed, Concurrency(None).allowed) == (2, 5)
