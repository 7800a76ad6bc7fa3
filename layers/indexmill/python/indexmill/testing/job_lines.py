"""What admission and forecasts need to know, counted over jobs in memory."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from statistics import quantiles

from indexmill.contracts.job import Job, JobStatus, Waiting
from indexmill.orchestrator.admission import SECONDS_PER_POINT, Candidate, Floor, Line, Usage, hold
from indexmill.orchestrator.forecast import LAST, Pace, eligible_at
from indexmill.orchestrator.quotas import Limits
from indexmill.testing.job_records import Record


def usage(records: Iterable[Record], caller_id: str, tier: str, now: datetime) -> Usage:
    """Count what one caller has and had."""
    own = [record for record in records if record.caller_id == caller_id]
    starts = sorted(each.admitted_at for each in own if each.admitted_at is not None)
    hour = [at for at in starts if at > now - timedelta(hours=1)]
    minute = [at for at in hour if at > now - timedelta(minutes=1)]
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    done = (each for each in own if each.job.status is JobStatus.DONE)
    return Usage(
        caller_id,
        tier,
        active=sum(each.active for each in own),
        in_hour=len(hour),
        in_minute=len(minute),
        hour_since=min(hour, default=None),
        minute_since=min(minute, default=None),
        newest=max(hour, default=None),
        chunks_today=sum(each.job.chunk_count or 0 for each in done if (each.ended_at or now) >= today),
    )


def in_turn(records: Iterable[Record], caller_id: str) -> list[Record]:
    """Return one caller's jobs in line, the next one first."""
    own = (record for record in records if record.caller_id == caller_id and record.in_line)
    return sorted(own, key=lambda record: (_turn(record.job), record.job.job_id))


def lines(records: Collection[Record], now: datetime) -> list[Line]:
    """Return the lines of all callers."""
    found = []
    for caller_id in sorted({record.caller_id for record in records if record.in_line}):
        own = in_turn(records, caller_id)
        jobs = [Candidate(each.job.job_id, each.job.priority, each.job.created_at) for each in own]
        found.append(Line(usage(records, caller_id, own[-1].tier, now), jobs))
    return found


def floor(records: Iterable[Record], now: datetime, *, paused: bool) -> Floor:
    """Count what everybody has at work."""
    callers = [record.caller_id for record in records if record.active]
    return Floor(now, len(callers), len(set(callers)), paused)


def pace(records: Iterable[Record]) -> Pace:
    """Say how fast the jobs went that were done last."""
    last = [
        (each.admitted_at, each.ended_at)
        for each in sorted(records, key=lambda each: each.job.updated_at)
        if each.job.status is JobStatus.DONE and each.ended_at and each.admitted_at
    ][-LAST:]
    if not last:
        return Pace()
    took = [(ended - started).total_seconds() for started, ended in last]
    slower = quantiles(took, n=4, method="inclusive")[2] if len(took) > 1 else took[0]
    shared = (
        (min(ended, other_ended) - max(started, other_started)).total_seconds()
        for started, ended in last
        for other_started, other_ended in last
    )
    return Pace(slower, sum(max(each, 0.0) for each in shared) / max(sum(took), 0.01))


def waiting(record: Record, records: Mapping[str, Record], limits: Limits, now_on: Floor) -> Waiting | None:
    """Say what a job waits for; None for one that is not pending."""
    if record.job.status is not JobStatus.PENDING:
        return None
    if not record.in_line:
        unmet = (each for each in record.depends_on if records[each].job.status is not JobStatus.DONE)
        return Waiting(reason="dependency", blocked_by=sorted(unmet))
    line = in_turn(records.values(), record.caller_id)
    used = usage(records.values(), record.caller_id, line[-1].tier, now_on.now)
    reason, _ = hold(used, limits.of(used.tier), now_on)
    position = line.index(record) + 1
    at = eligible_at(position, used, limits, now_on, pace(records.values()))
    return Waiting(reason=reason, position=position, next_eligible_at=at)


def _turn(job: Job) -> float:
    return job.created_at.timestamp() - SECONDS_PER_POINT * job.priority
