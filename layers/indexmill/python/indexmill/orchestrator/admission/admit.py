"""Admission: quotas of the tiers, which pending jobs start now, and their start.

Within a caller jobs start in the order of submission, corrected by priority: a point is worth half a minute
of waiting. Among callers the first job with the highest effective priority starts first, in steps of 20;
within a step that of the caller with the fewest jobs in flight. A caller of whom nothing started for a minute
comes before all others, so no caller starves. `choose` is pure: the store counts, it decides.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from indexmill.contracts.identity import FREE, CallerContext, tier_of
from indexmill.orchestrator.admission.turns import release
from indexmill.orchestrator.charges import first_message
from indexmill.orchestrator.store.admission import INTERNAL, MOST, Limits
from indexmill.orchestrator.store.rows import CallerQueue, Candidate, GlobalUsage, Usage
from indexmill.platform.quotas import Quota

if TYPE_CHECKING:
    from indexmill.orchestrator.store.jobs import JobStore, JobsTx
    from indexmill.orchestrator.store.rows import OutboxRow


MULTIPLIERS: Final[Mapping[str, int]] = MappingProxyType({FREE: 1, "pro": 2, "enterprise": 3, INTERNAL: 3})
"""What a tier makes of a job's priority."""


def admission_tier(ctx: CallerContext) -> str:
    """Return the tier under which a caller's jobs are admitted."""
    return INTERNAL if ctx.internal else tier_of(ctx.tier)


Reason = Literal["quota_active", "quota_hourly", "quota_chunks", "dependency", "paused", "capacity"]

NEGLECTED: Final = timedelta(minutes=1)
SECONDS_PER_POINT: Final = 30
"""Seconds of waiting that a point of priority is worth within a caller; the column `turn` uses it too."""
_STEP: Final = 20
_TOP: Final = 100
_MOST_PENALTY: Final = 30
_MOST_BONUS: Final = 20
_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Choice:
    """Jobs that start, and those that would with more capacity."""

    start: list[str]
    """Job ids in the order in which they start."""
    waiting_for_capacity: list[str]
    """The next job of each caller that only the capacity keeps waiting."""


def choose(queues: Iterable[CallerQueue], limits: Limits, overall: GlobalUsage) -> Choice:
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
    if quota.chunks_per_day is not None and usage.chunks_today >= quota.chunks_per_day:
        return 0
    limited = (
        (quota.max_active, usage.active),
        (quota.max_per_hour, usage.in_hour),
        (quota.burst, usage.in_minute),
    )
    return max(0, min((most - used for most, used in limited if most is not None), default=MOST))


def wait_reason(usage: Usage, limits: Limits, overall: GlobalUsage) -> tuple[Reason, datetime | None]:
    """Return why the caller's pending jobs wait, and until when if only time decides it."""
    quota = limits.of(usage.tier)
    if overall.paused:
        return "paused", None
    if quota.chunks_per_day is not None and usage.chunks_today >= quota.chunks_per_day:
        midnight = overall.now.replace(hour=0, minute=0, second=0, microsecond=0)
        return "quota_chunks", midnight + timedelta(days=1)
    if quota.max_per_hour is not None and usage.in_hour >= quota.max_per_hour:
        return "quota_hourly", (usage.hour_since or overall.now) + _HOUR
    if quota.burst is not None and usage.in_minute >= quota.burst:
        return "quota_hourly", (usage.minute_since or overall.now) + _MINUTE
    own = limits.quotas.get(usage.tier)
    if own and own.max_active is not None and usage.active >= own.max_active:
        return "quota_active", None
    # Also when the caller has its share of the window.
    return "capacity", None


def _place(usage: Usage, job: Candidate, ahead: int, now: datetime) -> tuple[bool, int, int, datetime, str]:
    """Return the sort key of a job when `ahead` others of its caller start now; the least starts first."""
    waited = now - job.since
    neglected = ahead == 0 and now - max(usage.newest or job.since, job.since) >= NEGLECTED
    step = min(effective_priority(job.priority, usage.tier, usage.in_hour + ahead, waited), _TOP - 1) // _STEP
    return not neglected, -step, usage.active + ahead, job.since, job.job_id


_CALLERS_AT_ONCE: Final = 50
"""Their locks are kept for one transaction."""


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
    started = tx.start_jobs(choice.start, first_message(len(choice.start))) if choice.start else []
    return [replace(row, admits=True) for row in started]


def admit_all(store: JobStore) -> list[OutboxRow]:
    """Start every pending job that may start, some callers at a time, and return the messages."""
    store.transaction(release)
    callers = store.read(lambda tx: tx.waiting_callers())
    rows: list[OutboxRow] = []
    for at in range(0, len(callers), _CALLERS_AT_ONCE):
        rows += store.transaction(partial(admit, callers=callers[at : at + _CALLERS_AT_ONCE]))
    return rows
