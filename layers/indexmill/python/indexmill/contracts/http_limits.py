"""Answer of GET /orchestrator/limits."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel


class RequestWindow(BaseModel):
    """Limit of the caller's requests to one service; null numbers: there is none, or its use is unknown."""

    service: str
    bucket: str
    """`read` for GET and HEAD, `work` for all others."""
    limit: int | None
    """Requests within the window, burst included."""
    window_seconds: int | None
    used: int | None
    remaining: int | None
    reset_s: int | None
    """Seconds until one more request is possible than now; 0 when none was made."""
    reason: str | None
    """`tier`, `claims`, `fair_share` or `internal`."""


class JobQuota(BaseModel):
    """One quota of jobs: beyond it jobs wait."""

    name: str
    """`active`, `hour`, `minute` or `chunks_today`."""
    limit: int | None
    used: int
    """Counted up to the limit; without one, of the last hour up to 15."""
    reset_at: datetime | None
    """Time at which the use becomes less by itself; null when nothing is used, or when a job has to end."""


class CallerLimits(BaseModel):
    """Limits of one caller and their use."""

    tier: str
    """Tier of its jobs."""
    requests: list[RequestWindow]
    jobs: list[JobQuota]
    pending: int
    max_pending: int
    """More pending jobs are refused."""
