"""Turns of jobs at their sites: a job that its site has no request left for soon is not admitted yet.

Each site has a bucket of starts with its rate (`DomainRates`), like that of its requests in the Scraper, but
five seconds ahead of it. So a slow site has few jobs in flight however many wait, and those count neither
for a quota nor for the dispatch window. Held-back jobs of a site leave by priority and age within a caller;
callers take turns, and one who may start nothing now lets the others go first. When a worker reports that a
site keeps its message waiting for longer, its next jobs wait as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from indexmill.contracts.content import is_given
from indexmill.contracts.errors import ErrorCode
from indexmill.contracts.messages import Retrying
from indexmill.orchestrator.store.jobs import JobsTx
from indexmill.orchestrator.store.rows import Fetch, HeldBack, JobState, NewJob, SiteTurns
from indexmill.platform.quotas import DomainRate, site_of

AHEAD: Final = timedelta(seconds=5)
"""Time between the admission of a job and its turn at the site, at most."""
AT_ONCE: Final = 20
"""Sites whose held-back jobs leave in one transaction."""
_MOST: Final = 100
"""Jobs of one site that leave in one transaction."""
_AGAIN: Final = timedelta(seconds=1)
"""Pause before the next look at a site whose held-back jobs cannot start."""
_CAUSES: Final = frozenset({ErrorCode.DOMAIN_BUSY, ErrorCode.DOMAIN_FAILING})


def startable(turns: SiteTurns, rate: DomainRate | None) -> int:
    """Return how many of the site's jobs may be admitted now."""
    if rate is None:
        return _MOST
    ahead = AHEAD + timedelta(seconds=rate.burst * rate.interval_s)
    left = (ahead - (max(turns.full_at, turns.now) - turns.now)).total_seconds()
    return max(0, min(_MOST, math.floor(left * rate.per_second + 1e-6)))


def free(turns: SiteTurns, rate: DomainRate | None) -> int:
    """Return how many new jobs may be admitted: none while others are held back, which leave before them.

    With a full bucket those that are held back cannot start, because of their callers' quotas.
    """
    full = turns.full_at <= turns.now
    return startable(turns, rate) if turns.due_at is None or full else 0


def started(turns: SiteTurns, rate: DomainRate | None, count: int) -> SiteTurns:
    """Return the site's state after `count` jobs were admitted."""
    if rate is None:
        return turns
    return replace(turns, full_at=max(turns.full_at, turns.now) + timedelta(seconds=count * rate.interval_s))


def next_at(turns: SiteTurns, rate: DomainRate | None) -> datetime:
    """Return when one more may be admitted."""
    if rate is None:
        return turns.now
    return turns.full_at - AHEAD - timedelta(seconds=(rate.burst - 1) * rate.interval_s)


def take_turns(tx: JobsTx, fetches: Sequence[Fetch]) -> dict[str, HeldBack]:
    """Return those of the jobs that are held back, by id; the others have a turn, and lose it if unused."""
    rates = tx.limits.rates
    sites = {fetch.job_id: site_of(fetch.url) for fetch in fetches}
    limited = sorted({site for site in sites.values() if rates.of(site) is not None})
    if not limited:
        return {}
    known = tx.lock_sites(limited)
    left = {site: free(turns, rates.of(site)) for site, turns in known.items()}
    found = {}
    for fetch in sorted(fetches, key=lambda fetch: (-fetch.priority, fetch.job_id)):
        site = sites[fetch.job_id]
        if site not in known:
            continue
        turns, rate = known[site], rates.of(site)
        if left[site] > 0:
            left[site] -= 1
            known[site] = started(turns, rate, 1)
            continue
        interval = timedelta(seconds=rate.interval_s if rate else 0.0)
        after = turns.last_at + interval if turns.due_at else turns.now
        at = max(after, next_at(turns, rate), turns.now)
        known[site] = replace(turns, last_at=at, due_at=turns.due_at or next_at(turns, rate))
        found[fetch.job_id] = HeldBack(site, at)
    tx.keep_sites(list(known.values()))
    return found


def with_turns(tx: JobsTx, jobs: Sequence[NewJob], *, replays: bool = False) -> list[NewJob]:
    """Return the new jobs, in order, with what their sites say.

    Jobs that fetch nothing take no turn, and those with dependencies take it when they wait for none. Replays
    take none unless `replays` is set.
    """
    fetching = [
        job for job in jobs if job.given is None and (replays or job.replay_of is None) and not job.depends_on
    ]
    held = take_turns(tx, [Fetch(job.job_id, job.target.url, job.priority) for job in fetching])
    return [
        replace(job, site=one.site, eligible_at=one.eligible_at) if (one := held.get(job.job_id)) else job
        for job in jobs
    ]


def line_up(tx: JobsTx, job_ids: Sequence[str]) -> None:
    """Hold back those of the pending jobs, which wait for nothing else any more, that have no turn yet."""
    if not job_ids or not tx.limits.rates.is_limited:
        return
    fetches = [each for each in tx.fetches(job_ids) if not is_given(each.url)]
    if held := take_turns(tx, fetches):
        tx.hold_back(held)


def release(tx: JobsTx) -> list[str]:
    """Let held-back jobs into the queues of their callers whose turn has come; return those callers."""
    due = tx.due_sites(AT_ONCE)
    if not due:
        return []
    left = tx.release_jobs(due, [startable(turns, tx.limits.rates.of(turns.site)) for turns in due])
    after = []
    for turns in due:
        rate, one = tx.limits.rates.of(turns.site), left[turns.site]
        turns = started(turns, rate, len(one.callers))  # noqa: PLW2901 - the state that follows
        due_at = max(next_at(turns, rate), turns.now + (timedelta() if one.callers else _AGAIN))
        last = one.callers[-1] if one.callers else one.seen
        after.append(replace(turns, due_at=due_at if one.more else None, last_caller=last))
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
