"""Let pending jobs start, inside the transaction that submits or ends others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC
from typing import Any

from indexmill.orchestrator.adapters import admission_sql as sql
from indexmill.orchestrator.admission import MOST, REMEMBERED, Candidate, Floor, Line, Usage, choose, room
from indexmill.orchestrator.pipeline import FIRST
from indexmill.orchestrator.ports import OutboxRow
from indexmill.orchestrator.quotas import MULTIPLIERS, Limits, Quota
from indexmill.platform.postgres.database import Connection

_USAGE_COLUMNS = 9


def admit(
    connection: Connection, limits: Limits, callers: Sequence[str], done: Sequence[str] = ()
) -> list[OutboxRow]:
    """Admit what may start of `callers`, and of others who wait for a free place.

    Call it last in a transaction: it takes the callers' locks and keeps them until the commit. `done` are the
    jobs that were done in it. Returns the messages to send, which count as claimed by us.
    """
    rows = connection.execute(sql.LOOK, _look_parameters(limits, callers, done)).fetchall()
    if not rows:
        return []
    lines = [_line(row) for row in rows]
    choice = choose(lines, limits, floor_of(rows[0][_USAGE_COLUMNS:]))
    if choice.held:
        connection.execute(sql.MARK, {"ids": choice.held})
    full = [line.usage.caller_id for line in lines if room(line.usage, limits.of(line.usage.tier)) == 0]
    others = sorted(set(full) - set(callers))
    if others:
        connection.execute(sql.UNMARK, {"callers": others})
    if not choice.start:
        return []
    started = connection.execute(sql.START, {"ids": choice.start, "first": FIRST}).fetchall()
    order = {job_id: at for at, job_id in enumerate(choice.start)}
    return sorted((OutboxRow(*row) for row in started), key=lambda row: order[row.job_id])


def waiting_callers(connection: Connection) -> list[str]:
    """Return everybody who has a job in line."""
    return [row[0] for row in connection.execute(sql.WAITING_CALLERS).fetchall()]


def usage_parameters(limits: Limits, caller_id: str, tier: str) -> dict[str, Any]:
    """What `USAGE` needs to know; a count ends where the limit is."""
    quota = limits.of(tier)
    return {
        "caller_id": caller_id,
        "tier": tier,
        "max_active": quota.max_active,
        "remembered": _remembered(quota),
        "window": limits.window,
        "most": limits.max_pending + 1,
    }


def _look_parameters(limits: Limits, callers: Sequence[str], done: Sequence[str]) -> dict[str, Any]:
    quotas = {tier: limits.of(tier) for tier in MULTIPLIERS}
    return {
        "callers": list(callers),
        "done": list(done),
        "daily": [tier for tier, quota in quotas.items() if quota.chunks_per_day is not None],
        "tiers": list(quotas),
        "max_active": [quota.max_active for quota in quotas.values()],
        "remembered": [_remembered(quota) for quota in quotas.values()],
        "window": limits.window,
        "most": MOST,
    }


def _remembered(quota: Quota) -> int:
    return max(REMEMBERED, quota.max_per_hour or 0, quota.burst or 0)


def usage_of(row: Sequence[Any]) -> Usage:
    """Read the first columns of a row."""
    return Usage(*row[:_USAGE_COLUMNS])


def floor_of(row: Sequence[Any]) -> Floor:
    """Read the columns behind the usage."""
    now, active, callers, paused = row[:4]
    return Floor(now.astimezone(UTC), active, callers, paused)


def _line(row: Sequence[Any]) -> Line:
    ids, priorities, since = (found or () for found in row[-3:])
    jobs = [Candidate(*each) for each in zip(ids, priorities, since, strict=True)]
    return Line(usage_of(row), jobs)
