"""Wait reasons of pending jobs, and the estimates shown with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from indexmill.contracts.errors import CallerError
from indexmill.contracts.identity import Usage
from indexmill.orchestrator.admission.admit import (
    Quota,
    check_pending,
    choose,
    effective_priority,
    eligible_at,
    expected_by,
    free_slots,
    wait_reason,
)
from indexmill.orchestrator.store.admission import JobLimits
from indexmill.orchestrator.store.rows import CallerQueue, Candidate, GlobalUsage, Pace

NOW = datetime(2026, 3, 1, 22, 30, tzinfo=UTC)
OVERALL = GlobalUsage(NOW)
PACE = Pace(duration_s=2.0, abreast=4.0)
FULL = Quota(max_active=2, max_per_hour=60, burst=10, chunks_per_day=100)
LIMITS = JobLimits({"pro": FULL})


def queue(
    caller: str, tier: str = "pro", active: int = 0, waited_s: int = 0, newest_s: int | None = None
) -> CallerQueue:
    newest = NOW - timedelta(seconds=newest_s) if newest_s is not None else None
    usage = Usage(caller, tier, active, newest=newest)
    return CallerQueue(usage, [Candidate(f"{caller}-job", 50, NOW - timedelta(seconds=waited_s))])


@pytest.mark.parametrize(
    ("priority", "tier", "in_hour", "minutes", "expected"),
    [
        (50, "free", 0, 0, 50),
        (50, "pro", 0, 0, 100),
        (20, "enterprise", 0, 0, 60),
        (50, "free", 5, 0, 40),
        (50, "free", 500, 0, 20),
        (50, "free", 0, 3.5, 57),
        (50, "free", 500, 600, 40),
        (0, "free", 500, 0, 0),
        (100, "enterprise", 500, 0, 100),
    ],
)
def test_effective_priority_combines_tier_usage_and_waiting(
    priority: int, tier: str, in_hour: int, minutes: float, expected: int
) -> None:
    assert effective_priority(priority, tier, in_hour, timedelta(minutes=minutes)) == expected


def test_the_order_is_effective_priority_then_fewest_in_flight_then_longest_wait() -> None:
    limits = JobLimits(window=4)
    queues = [
        queue("busy", active=1),
        queue("late", waited_s=1),
        queue("free", "free"),
        queue("early", waited_s=2),
    ]
    assert choose(queues, limits, OVERALL).start == ["early-job", "late-job", "busy-job", "free-job"]


def test_a_caller_neglected_for_a_minute_goes_first() -> None:
    queues = [
        queue("ann", "enterprise"),
        queue("zoe", "free", waited_s=60),
        queue("bob", "free", waited_s=90, newest_s=9),
    ]
    choice = choose(queues, JobLimits(window=1), OVERALL)
    assert choice.start == ["zoe-job"]
    assert sorted(choice.waiting_for_capacity) == ["ann-job", "bob-job"]


@pytest.mark.parametrize(
    ("usage", "reason", "until"),
    [
        (Usage("a", "pro", active=2), "quota_active", None),
        (
            Usage("a", "pro", in_hour=60, hour_since=NOW - timedelta(minutes=50)),
            "quota_hourly",
            timedelta(minutes=10),
        ),
        (
            Usage("a", "pro", in_minute=10, minute_since=NOW - timedelta(seconds=15)),
            "quota_hourly",
            timedelta(seconds=45),
        ),
        (
            Usage(
                "a",
                "pro",
                in_hour=60,
                hour_since=NOW - timedelta(minutes=59, seconds=50),
                in_minute=10,
                minute_since=NOW - timedelta(seconds=15),
            ),
            "quota_hourly",
            timedelta(seconds=10),
        ),
        (Usage("a", "pro", active=2, chunks_today=100), "quota_chunks", timedelta(minutes=90)),
        (Usage("a", "pro", active=1, in_hour=59, in_minute=9, chunks_today=99), "capacity", None),
    ],
)
def test_the_reason_is_the_one_that_lasts_longest(usage: Usage, reason: str, until: timedelta | None) -> None:
    assert wait_reason(usage, LIMITS, OVERALL) == (reason, NOW + until if until else None)
    assert wait_reason(usage, LIMITS, GlobalUsage(NOW, paused=True)) == ("paused", None)


def test_a_caller_with_its_share_of_the_window_waits_for_capacity() -> None:
    limits = JobLimits({"pro": Quota(max_active=100)}, window=40, per_caller=20)
    usage = Usage("a", "pro", active=20)
    assert wait_reason(usage, limits, OVERALL) == ("capacity", None)
    assert free_slots(usage, limits.of("pro")) == 0


def seconds(at: datetime | None) -> float:
    assert at is not None
    return (at - NOW).total_seconds()


def test_the_start_is_estimated_by_turn_quota_and_clock() -> None:
    limits = JobLimits({"pro": Quota(max_active=4)}, window=40)
    busy = Usage("a", "pro", active=4)
    assert seconds(eligible_at(1, busy, limits, GlobalUsage(NOW, 4, 1), PACE)) == 0.5
    assert seconds(eligible_at(10, busy, limits, GlobalUsage(NOW, 4, 1), PACE)) == 5.0
    # Twenty callers share forty slots, and the jobs that the others have in flight slow these two down.
    assert 10.0 < seconds(eligible_at(10, busy, limits, GlobalUsage(NOW, 40, 20), PACE)) < 20.0
    spent = Usage("a", "pro", in_hour=60, hour_since=NOW - timedelta(minutes=50))
    assert seconds(eligible_at(1, spent, LIMITS, OVERALL, PACE)) == 600
    assert seconds(eligible_at(4, spent, LIMITS, OVERALL, PACE)) == 600 + 3 * 60
    assert eligible_at(1, busy, limits, GlobalUsage(NOW, paused=True), PACE) is None


def promised(ahead: int, usage: Usage, limits: JobLimits, pace: Pace = PACE) -> float:
    return seconds(expected_by(ahead, usage, limits, OVERALL, pace))


def test_a_promise_leaves_room() -> None:
    new, limits = Usage("a", "pro"), JobLimits({"pro": Quota(max_active=4)})
    lonely = Pace(2.0, 1.0)
    assert promised(0, new, limits, lonely) == pytest.approx(1.9 * 2.0 + 0.1)
    # No job was done yet.
    assert promised(0, new, limits, Pace()) == pytest.approx(1.9 * 15 + 0.1)
    # The hour's quota is used up; the minute's is after ten.
    spent = Usage("a", "pro", in_hour=60, hour_since=NOW - timedelta(minutes=50))
    assert promised(0, spent, LIMITS, lonely) == pytest.approx(600 + 1.9 * 2.0 + 0.1)
    took = 2.0 * 2**0.15
    assert promised(15, new, LIMITS, lonely) == pytest.approx(1.9 * (36 + took) + 0.1)


def test_a_job_with_a_free_slot_waits_for_no_round_and_the_next_for_a_whole_one() -> None:
    limits = JobLimits({"pro": Quota(max_active=4)})
    for before, rounds in {3: 0, 4: 1, 7: 1, 8: 2, 20: 5}.items():
        ahead = max(0, before - 4)
        reported = promised(ahead, Usage("a", "pro", active=before - ahead), limits)
        assert reported == pytest.approx(1.9 * (rounds + 1) * 2.0 + 0.1)


def test_other_callers_jobs_in_flight_make_a_job_slower() -> None:
    new = Usage("a", "pro")
    alone, among = (
        seconds(expected_by(0, new, JobLimits(), GlobalUsage(NOW, active, 2), PACE)) for active in (4, 200)
    )
    assert alone < among < 3 * alone


def test_the_time_of_a_single_job_promises_less_for_many() -> None:
    """More jobs together are done sooner, though not by as much as they are more."""
    new, limits = Usage("a", "pro"), JobLimits()
    lonely, many = (promised(100, new, limits, Pace(2.0, abreast)) for abreast in (1.0, 20.0))
    assert many < lonely < 2 * many


def test_a_refusal_says_when_there_may_be_room() -> None:
    limits = JobLimits({"pro": Quota(max_active=4)}, max_pending=100)
    busy = Usage("a", "pro", active=4)
    check_pending(90, 10, busy, limits, OVERALL, PACE)
    with pytest.raises(CallerError) as caught:
        check_pending(91, 10, busy, limits, OVERALL, PACE)
    assert (caught.value.code, caught.value.retry_after) == ("quota_exceeded", 5)
