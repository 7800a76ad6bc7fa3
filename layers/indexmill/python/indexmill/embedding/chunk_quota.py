"""Chunks per day of a caller: one count for its jobs and for what it embeds without them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from indexmill.contracts.errors import CallerError, ErrorCode, TransientError
from indexmill.contracts.identity import CallerContext, Quota, tier_of
from indexmill.embedding.ports import ChunkCounts
from indexmill.platform.observability import Observability
from indexmill.platform.time import Clock


@dataclass(frozen=True, slots=True)
class ChunkQuota:
    """Counts the chunks of standalone requests; the system's own callers work for jobs, which count too."""

    quotas: Mapping[str, Quota]
    """By tier."""
    counts: ChunkCounts
    clock: Clock
    observability: Observability

    @contextmanager
    def used(self, caller: CallerContext, chunks: int, field: str) -> Iterator[None]:
        """Count `chunks` for the work of this block; those of a block that raises are taken back.

        Raises CallerError(quota_exceeded) when the day's quota does not suffice; `field` is the request's.
        While Postgres is unavailable nothing is counted and nothing refused.
        """
        most = self.quotas[tier_of(caller.tier)].chunks_per_day
        if most is None or caller.internal:
            yield
            return
        counted = self._count(caller.caller_id, chunks, most, field)
        try:
            yield
        except Exception:
            if counted:
                self._try(caller.caller_id, -chunks, most)
            raise

    def _count(self, caller_id: str, chunks: int, most: int, field: str) -> bool:
        """Return whether the chunks were counted."""
        counted = self._try(caller_id, chunks, most)
        if counted is None:
            now = self.clock.now()
            raise CallerError(
                ErrorCode.QUOTA_EXCEEDED,
                f"Your chunks of the day do not suffice for {chunks} more; a day has {most}.",
                field=field,
                retry_after=math.ceil((next_midnight(now) - now).total_seconds()),
                hint="Send fewer, or wait until midnight UTC.",
            )
        return counted

    def _try(self, caller_id: str, chunks: int, most: int) -> bool | None:
        """Return whether the chunks were counted; None when they would be too many."""
        try:
            return True if self.counts.add(caller_id, chunks, most) else None
        except TransientError as error:
            self.observability.log.warning("chunk_quota.unavailable", extra={"code": error.code})
            self.observability.count("chunk_quota_unavailable_total")
            return False


def next_midnight(now: datetime) -> datetime:
    """Return the next midnight UTC."""
    return now.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
