"""When a job will start and by when it will have ended, from what was just observed. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.orchestrator.admission.choose import GlobalUsage, Pace, Usage, hold
from indexmill.orchestrator.admission.quotas import Limits, Quota
from indexmill.orchestrator.ports import NewJob

LAST: Final = 40
"""Jobs done last, by which the pace is known; more would remember an hour that was quieter, or busier."""
_ABREAST: Final = 20
"""Jobs of one caller that are counted on to be at work together, unless its quota says less."""
_GAIN: Final = 0.85
"""What more jobs abreast than were seen bring: 1 if none slowed another, 0 if nothing was won."""
_SAFETY: Final = 1.9
"""A promise is this much longer than what is expected."""
_ACCEPTING_S: Final = 0.1
"""What a job costs before it can start."""
_UNKNOWN_S: Final = 15.0
_LONGEST_RETRY_S: Final = 3600.0


def check_pending(
    pending: int, count: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace
) -> None:
    """Refuse `count` jobs more of a caller that has `pending` ones, when they are too many.

    Raises CallerError(quota_exceeded).
    """
    if pending + count <= limits.max_pending:
        return
    at = eligible_at(count, usage, limits, overall, pace) or overall.now
    wait_s = min(max((at - overall.now).total_seconds(), 1.0), _LONGEST_RETRY_S)
    raise CallerError(
        ErrorCode.QUOTA_EXCEEDED,
        f"{pending} of your jobs are pending, these are {count} more; at most {limits.max_pending} may be.",
        retry_after=math.ceil(wait_s),
    )


def expectations(
    pending: int, jobs: Sequence[NewJob], usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace
) -> dict[str, datetime | None]:
    """Promise for each of `jobs`, which are submitted together, by its id, when it will have ended.

    There is no promise for jobs that wait for others or for an operator. Raises CallerError(quota_exceeded)
    when the caller's `pending` ones leave no room.
    """
    check_pending(pending, len(jobs), usage, limits, overall, pace)
    if jobs[0].depends_on or overall.paused:
        return {job.job_id: None for job in jobs}
    turns = sorted(jobs, key=lambda job: (-job.priority, job.job_id))
    return {
        job.job_id: expected_by(pending + at, usage, limits, overall, pace) for at, job in enumerate(turns)
    }


def last_of(promises: Iterable[datetime | None]) -> datetime | None:
    """Return by when all will have ended; None when there is no promise."""
    return max((at for at in promises if at is not None), default=None)


def eligible_at(
    position: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace
) -> datetime | None:
    """Estimate when the caller's pending job at `position` (1 is next) starts; None when a person decides."""
    quota = limits.of(usage.tier)
    reason, until = hold(usage, quota, overall)
    if reason == "paused":
        return None
    # A clock that opens the gate lets the first one through at once; else somebody has to end first.
    turns = position if until is None else position - 1
    seconds = max(turns / _rate(usage, limits, overall, pace), _quota_s(position, usage, quota))
    return max(overall.now, until or overall.now) + timedelta(seconds=seconds)


def expected_by(ahead: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace) -> datetime:
    """Promise when a job submitted now behind `ahead` pending ones of its caller will have ended.

    What was submitted together goes in rounds, since it started together: a job that finds a free place waits
    for nobody, the next one for a whole round.
    """
    quota = limits.of(usage.tier)
    _, until = hold(usage, quota, overall)
    before, places = usage.active + ahead, _places(usage, limits, overall)
    took_s = _took_s(min(before + 1, places) + _of_others(usage, overall), pace)
    seconds = max(before // places * took_s, _quota_s(ahead + 1, usage, quota)) + took_s
    return max(overall.now, until or overall.now) + timedelta(seconds=_SAFETY * seconds + _ACCEPTING_S)


def _quota_s(position: int, usage: Usage, quota: Quota) -> float:
    """Seconds until the limits per hour and minute let `position` further jobs start."""
    hourly = _beyond(position, quota.max_per_hour, usage.in_hour) * 3600.0
    return max(hourly, _beyond(position, quota.burst, usage.in_minute) * 60.0)


def _beyond(position: int, limit: int | None, used: int) -> float:
    """How many periods later than the first one the job starts."""
    return 0.0 if limit is None else max(0, position - max(1, limit - used)) / limit


def _rate(usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace) -> float:
    """Return jobs of the caller per second while it has as many at work as it may."""
    places = _places(usage, limits, overall)
    return places / _took_s(places + _of_others(usage, overall), pace)


def _places(usage: Usage, limits: Limits, overall: GlobalUsage) -> int:
    """Return how many jobs of the caller are counted on to be at work together."""
    callers = max(1, overall.callers + (usage.active == 0))
    return min(limits.of(usage.tier).max_active or _ABREAST, _ABREAST, max(1, limits.window // callers))


def _of_others(usage: Usage, overall: GlobalUsage) -> int:
    return max(0, overall.active - usage.active)


def _took_s(abreast: int, pace: Pace) -> float:
    """Return what each of so many jobs at work together takes; that grows with their number, and falls."""
    if pace.duration_s is None:
        return _UNKNOWN_S
    return max(pace.duration_s, 0.01) * math.pow(abreast / max(pace.abreast, 1.0), 1 - _GAIN)
