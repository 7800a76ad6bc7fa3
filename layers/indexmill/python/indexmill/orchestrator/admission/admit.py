"""Admission: choice of the pending jobs that start now, by quotas and rates of sites; forecasts of their end.

Within a caller jobs start in the order of submission, corrected by priority: a point is worth half a minute
of waiting. Among callers the first job with the highest effective priority starts first, in steps of 20;
within a step that of the caller with the fewest jobs in flight. A caller of whom nothing started for a minute
comes before all others, so no caller starves. `choose` is pure: the store counts, it decides.

Each site has a bucket of starts with its rate (`DomainRates`), like that of its requests in the Scraper, but
five seconds ahead of it. So a slow site has few jobs in flight however many wait, and those count neither
for a quota nor for the dispatch window. Held-back jobs of a site leave by priority and age within a caller;
callers take turns, and one who may start nothing now lets the others go first. When a worker reports that a
site keeps its message waiting for longer, its next jobs wait as long.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from indexmill.contracts.content import is_given
from indexmill.contracts.cost import Budget
from indexmill.contracts.errors import CallerError, ErrorCode
from indexmill.contracts.identity import FREE, START_QUOTAS, CallerContext, Quota, Usage, WaitReason, tier_of
from indexmill.contracts.messages import Retrying
from indexmill.orchestrator.store.admission import INTERNAL, MOST, JobLimits
from indexmill.orchestrator.store.jobs import JobStore, JobsTx
from indexmill.orchestrator.store.rows import (
    CallerQueue,
    Candidate,
    Fetch,
    GlobalUsage,
    HeldBack,
    JobState,
    NewJob,
    OutboxRow,
    Pace,
)
from indexmill.platform.meter import first_messages
from indexmill.platform.security.urls import site_of

MULTIPLIERS: Final[Mapping[str, int]] = MappingProxyType({FREE: 1, "pro": 2, "enterprise": 3, INTERNAL: 3})
"""What a tier makes of a job's priority."""


def admission_tier(ctx: CallerContext) -> str:
    """Return the tier under which a caller's jobs are admitted."""
    return INTERNAL if ctx.internal else tier_of(ctx.tier)


NEGLECTED: Final = timedelta(minutes=1)
SECONDS_PER_POINT: Final = 30
"""Seconds of waiting that a point of priority is worth within a caller; the column `turn` uses it too."""
_STEP: Final = 20
_TOP: Final = 100
_MOST_PENALTY: Final = 30
_MOST_BONUS: Final = 20
_MINUTE: Final = timedelta(minutes=1)
_CALLERS_AT_ONCE: Final = 50
"""Their locks are kept for one transaction."""
AT_ONCE: Final = 20
"""Sites whose held-back jobs leave in one transaction."""
_AGAIN: Final = timedelta(seconds=1)
"""Pause before the next look at a site whose held-back jobs cannot start."""
_CAUSES: Final = frozenset({ErrorCode.DOMAIN_BUSY, ErrorCode.DOMAIN_FAILING})
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


def budget_of(asked: Budget | None, quota: Quota) -> Budget | None:
    """Return a job's budget: the lower of what was asked for and what its caller's quota allows, each."""
    lower: dict[str, Any] = {
        "max_chunks": quota.job_chunks,
        "max_bytes": quota.job_bytes,
        "max_cost_usd": quota.job_cost,
    }
    for name, bound in asked or ():
        if bound is not None and (lower[name] is None or bound < lower[name]):
            lower[name] = bound
    return Budget(**lower) if any(bound is not None for bound in lower.values()) else None


@dataclass(frozen=True, slots=True)
class Choice:
    """Jobs that start, and those that would with more capacity."""

    start: list[str]
    """Job ids in the order in which they start."""
    waiting_for_capacity: list[str]
    """The next job of each caller that only the capacity keeps waiting."""


def choose(queues: Iterable[CallerQueue], limits: JobLimits, overall: GlobalUsage) -> Choice:
    """Choose the jobs to start now."""
    if overall.paused:
        return Choice([], [])
    heads = []
    for each in queues:
        slots = free_slots(each.usage, limits.of(each.usage.tier))
        jobs = each.jobs[:slots]
        if jobs:
            heads.append((_place(each.usage, jobs[0], 0, overall.now), 0, each.usage, jobs))
    # Ids of jobs are unique, so no two keys are equal and the values behind them are not compared.
    heapq.heapify(heads)
    start: list[str] = []
    free = limits.window - overall.active
    while heads and len(start) < free:
        _, at, usage, jobs = heapq.heappop(heads)
        start.append(jobs[at].job_id)
        if at + 1 < len(jobs):
            place = _place(usage, jobs[at + 1], at + 1, overall.now)
            heapq.heappush(heads, (place, at + 1, usage, jobs))
    return Choice(start, [jobs[at].job_id for _, at, _, jobs in heads])


def effective_priority(priority: int, tier: str, in_hour: int, waited: timedelta) -> int:
    """Return a pending job's effective priority, 0 to 100, now.

    The tier multiplies; a job that started in the last hour costs two points, 30 at most; a minute of waiting
    adds two, 20 at most.
    """
    base = priority * MULTIPLIERS.get(tier, 1)
    penalty = min(_MOST_PENALTY, 2 * in_hour)
    bonus = min(_MOST_BONUS, int(2 * (waited / _MINUTE)))
    return max(0, min(_TOP, base - penalty + bonus))


def free_slots(usage: Usage, quota: Quota) -> int:
    """Return how many further jobs the caller's own quota lets start."""
    if any(each.is_used_up(usage, quota) for each in START_QUOTAS):
        return 0
    limits = ((each.most(quota), each.used(usage)) for each in START_QUOTAS if each.counts_jobs)
    return min((most - used for most, used in limits if most is not None), default=MOST)


def wait_reason(usage: Usage, limits: JobLimits, overall: GlobalUsage) -> tuple[WaitReason, datetime | None]:
    """Return why the caller's pending jobs wait, and until when if only time decides it."""
    if overall.paused:
        return "paused", None
    # Not within the share of one caller: who has that waits for capacity.
    quota = limits.quotas.get(usage.tier, Quota())
    full = [each for each in START_QUOTAS if each.is_used_up(usage, quota)]
    if not full:
        return "capacity", None
    reason = full[-1].reason
    first = next(each for each in full if each.reason == reason)
    return reason, first.resets_at(usage, overall.now)


def _place(usage: Usage, job: Candidate, ahead: int, now: datetime) -> tuple[bool, int, int, datetime, str]:
    """Return the sort key of a job when `ahead` others of its caller start now; the least starts first."""
    waited = now - job.since
    neglected = ahead == 0 and now - max(usage.newest or job.since, job.since) >= NEGLECTED
    step = min(effective_priority(job.priority, usage.tier, usage.in_hour + ahead, waited), _TOP - 1) // _STEP
    return not neglected, -step, usage.active + ahead, job.since, job.job_id


def admit(tx: JobsTx, callers: Sequence[str], done: Sequence[str] = ()) -> list[OutboxRow]:
    """Start the pending jobs of `callers`, and of others that wait for capacity; return their messages.

    Call it last in a transaction: it locks the callers until the commit. `done` are the jobs that were done
    in it. This process has the lease of the messages.
    """
    found = tx.queues_to_admit(callers, done)
    if found is None:
        return []
    queues, overall = found
    choice = choose(queues, tx.limits, overall)
    if choice.waiting_for_capacity:
        tx.mark_waiting_for_capacity(choice.waiting_for_capacity)
    usages = [queue.usage for queue in queues]
    full = {usage.caller_id for usage in usages if free_slots(usage, tx.limits.of(usage.tier)) == 0}
    if others := sorted(full - set(callers)):
        tx.clear_waiting_for_capacity(others)
    started = tx.start_jobs(choice.start, first_messages(len(choice.start))) if choice.start else []
    return [replace(row, admits=True) for row in started]


def admit_all(store: JobStore) -> list[OutboxRow]:
    """Start every pending job that may start, some callers at a time, and return the messages."""
    store.transaction(release)
    callers = store.read(lambda tx: tx.waiting_callers())
    rows: list[OutboxRow] = []
    for at in range(0, len(callers), _CALLERS_AT_ONCE):
        rows += store.transaction(partial(admit, callers=callers[at : at + _CALLERS_AT_ONCE]))
    return rows


def check_pending(
    pending: int, count: int, usage: Usage, limits: JobLimits, overall: GlobalUsage, pace: Pace
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
    pending: int, jobs: Sequence[NewJob], usage: Usage, limits: JobLimits, overall: GlobalUsage, pace: Pace
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


def eligible_at(
    position: int, usage: Usage, limits: JobLimits, overall: GlobalUsage, pace: Pace
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


def expected_by(ahead: int, usage: Usage, limits: JobLimits, overall: GlobalUsage, pace: Pace) -> datetime:
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


def _rate(usage: Usage, limits: JobLimits, overall: GlobalUsage, pace: Pace) -> float:
    """Return the caller's jobs per second while its slots are full."""
    places = _places(usage, limits, overall)
    return places / _took_s(places + _of_others(usage, overall), pace)


def _places(usage: Usage, limits: JobLimits, overall: GlobalUsage) -> int:
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


def take_starts(tx: JobsTx, fetches: Sequence[Fetch]) -> dict[str, HeldBack]:
    """Return the held-back jobs, by id. Each other one took a start of its site, which is lost if unused."""
    rates = tx.limits.rates
    sites = {fetch.job_id: site_of(fetch.url) for fetch in fetches}
    limited = sorted({site for site in sites.values() if rates.of(site) is not None})
    if not limited:
        return {}
    known = tx.lock_sites(limited)
    left = {site: bucket.free(rates.of(site)) for site, bucket in known.items()}
    found = {}
    for fetch in sorted(fetches, key=lambda fetch: (-fetch.priority, fetch.job_id)):
        site = sites[fetch.job_id]
        if site not in known:
            continue
        bucket, rate = known[site], rates.of(site)
        if left[site] > 0:
            left[site] -= 1
            known[site] = bucket.started(rate, 1)
            continue
        interval = timedelta(seconds=rate.interval_s if rate else 0.0)
        after = bucket.last_at + interval if bucket.due_at else bucket.now
        at = max(after, bucket.next_at(rate), bucket.now)
        known[site] = replace(bucket, last_at=at, due_at=bucket.due_at or bucket.next_at(rate))
        found[fetch.job_id] = HeldBack(site, at)
    tx.keep_sites(list(known.values()))
    return found


def with_starts(tx: JobsTx, jobs: Sequence[NewJob], *, replays: bool = False) -> list[NewJob]:
    """Return the new jobs, in order, those that are held back with their site and estimated start.

    Jobs that fetch nothing need no start of a site, and those with dependencies take it when they wait for
    none. Replays take none unless `replays` is set.
    """
    fetching = [
        job for job in jobs if job.given is None and (replays or job.replay_of is None) and not job.depends_on
    ]
    held = take_starts(tx, [Fetch(job.job_id, job.target.url, job.priority) for job in fetching])
    return [
        replace(job, site=one.site, eligible_at=one.eligible_at) if (one := held.get(job.job_id)) else job
        for job in jobs
    ]


def hold_back_pending(tx: JobsTx, job_ids: Sequence[str]) -> None:
    """Hold back those of the pending jobs for which their sites have no start; they wait for nothing else."""
    if not job_ids or not tx.limits.rates.is_limited:
        return
    fetches = [each for each in tx.fetches(job_ids) if not is_given(each.url)]
    if held := take_starts(tx, fetches):
        tx.hold_back(held)


def release(tx: JobsTx) -> list[str]:
    """Move the held-back jobs that their sites let start to their callers' queues; return those callers."""
    due = tx.due_sites(AT_ONCE)
    if not due:
        return []
    left = tx.release_jobs(due, [bucket.startable(tx.limits.rates.of(bucket.site)) for bucket in due])
    after = []
    for bucket in due:
        rate, one = tx.limits.rates.of(bucket.site), left[bucket.site]
        bucket = bucket.started(rate, len(one.callers))  # noqa: PLW2901 - the state that follows
        due_at = max(bucket.next_at(rate), bucket.now + (timedelta() if one.callers else _AGAIN))
        last = one.callers[-1] if one.callers else one.seen
        after.append(replace(bucket, due_at=due_at if one.more else None, last_caller=last))
    tx.keep_sites(after)
    return sorted({caller for one in left.values() for caller in one.callers})


def defer(tx: JobsTx, states: Mapping[str, JobState], retries: Mapping[str, Retrying]) -> None:
    """Hold back further jobs of sites that keep messages waiting; `retries` are by job id."""
    until: dict[str, float] = {}
    failing = set[str]()
    for job_id, note in retries.items():
        site = note.site or site_of(states[job_id].target.url)
        if note.cause in _CAUSES and tx.limits.rates.of(site) is not None:
            until[site] = max(until.get(site, 0.0), note.retry_in_s or 0.0)
            if note.cause == ErrorCode.DOMAIN_FAILING:
                failing.add(site)
    if until:
        tx.defer_sites(until, failing)
