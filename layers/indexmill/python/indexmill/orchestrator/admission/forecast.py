"""Forecast of when a job starts and ends, from recent durations. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.orchestrator.admission.admit import wait_reason
from indexmill.orchestrator.store.admission import Limits
from indexmill.orchestrator.store.rows import GlobalUsage, NewJob, Pace, Usage
from indexmill.platform.quotas import Quota

_ABREAST: Final = 20
"""Assumed jobs in flight of a caller without a limit of its own."""
_GAIN: Final = 0.85
"""Gain of more concurrent jobs than were observed: 1 if none slows another, 0 for no gain."""
_SAFETY: Final = 1.9
"""Factor of a promise over the expected time."""
_ACCEPTING_S: Final = 0.1
"""Seconds before a job can start."""
_UNKNOWN_S: Final = 15.0
_LONGEST_RETRY_S: Final = 3600.0


def check_pending(
    pending: int, count: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace
) -> None:
    """Refuse `count` further jobs of a caller that has `pending` ones, when they are too many.

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
    """Return, by id, when each of `jobs`, which are submitted together, will have ended.

    None for jobs with dependencies and during a pause. Raises CallerError(quota_exceeded) when the caller has
    too many `pending` ones.
    """
    check_pending(pending, len(jobs), usage, limits, overall, pace)
    if jobs[0].depends_on or overall.paused:
        return {job.job_id: None for job in jobs}
    turns = sorted(jobs, key=lambda job: (-job.priority, job.job_id))
    return {
        job.job_id: _later(expected_by(pending + at, usage, limits, overall, pace), job, overall.now)
        for at, job in enumerate(turns)
    }


def _later(at: datetime, job: NewJob, now: datetime) -> datetime:
    """Return the promise of a job that its site may hold back first."""
    return at if job.eligible_at is None else at + _SAFETY * (job.eligible_at - now)


def last_of(promises: Iterable[datetime | None]) -> datetime | None:
    """Return by when all will have ended; None when there is no promise."""
    return max((at for at in promises if at is not None), default=None)


def eligible_at(
    position: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace
) -> datetime | None:
    """Estimate when the caller's pending job at `position` (1 is next) starts; None when a person decides."""
    quota = limits.of(usage.tier)
    reason, until = wait_reason(usage, limits, overall)
    if reason == "paused":
        return None
    # When only time decides, the first job starts at `until`; else another job has to end first.
    turns = position if until is None else position - 1
    seconds = max(turns / _rate(usage, limits, overall, pace), _quota_s(position, usage, quota))
    return max(overall.now, until or overall.now) + timedelta(seconds=seconds)


def expected_by(ahead: int, usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace) -> datetime:
    """Return when a job submitted now behind `ahead` pending ones of its caller will have ended.

    Jobs submitted together run in rounds, since they start together: a job with a free slot does not wait,
    the next one waits for a whole round.
    """
    quota = limits.of(usage.tier)
    _, until = wait_reason(usage, limits, overall)
    before, places = usage.active + ahead, _places(usage, limits, overall)
    took_s = _took_s(min(before + 1, places) + _of_others(usage, overall), pace)
    seconds = max(before // places * took_s, _quota_s(ahead + 1, usage, quota)) + took_s
    return max(overall.now, until or overall.now) + timedelta(seconds=_SAFETY * seconds + _ACCEPTING_S)


def _quota_s(position: int, usage: Usage, quota: Quota) -> float:
    """Return the seconds until the limits per hour and minute let `position` further jobs start."""
    hourly = _beyond(position, quota.max_per_hour, usage.in_hour) * 3600.0
    return max(hourly, _beyond(position, quota.burst, usage.in_minute) * 60.0)


def _beyond(position: int, limit: int | None, used: int) -> float:
    """Return how many periods after the first one the job starts."""
    return 0.0 if limit is None else max(0, position - max(1, limit - used)) / limit


def _rate(usage: Usage, limits: Limits, overall: GlobalUsage, pace: Pace) -> float:
    """Return the caller's jobs per second while its slots are full."""
    places = _places(usage, limits, overall)
    return places / _took_s(places + _of_others(usage, overall), pace)


def _places(usage: Usage, limits: Limits, overall: GlobalUsage) -> int:
    """Return how many jobs of the caller are assumed to be in flight together."""
    callers = max(1, overall.callers + (usage.active == 0))
    return min(limits.of(usage.tier).max_active or _ABREAST, max(1, limits.window // callers))


def _of_others(usage: Usage, overall: GlobalUsage) -> int:
    return max(0, overall.active - usage.active)


def _took_s(abreast: int, pace: Pace) -> float:
    """Return the seconds of each of `abreast` jobs in flight together; they grow with the number."""
    if pace.duration_s is None:
        return _UNKNOWN_S
    return max(pace.duration_s, 0.01) * math.pow(abreast / max(pace.abreast, 1.0), 1 - _GAIN)
