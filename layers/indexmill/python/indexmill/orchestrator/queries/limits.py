"""Limits of a caller, and how much of each is used; health of the service, readable without a key."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from indexmill.contracts.errors import TransientError
from indexmill.contracts.http_actions import CallerLimits, JobQuota, RequestWindow
from indexmill.contracts.identity import START_QUOTAS, CallerContext, Quota, Usage
from indexmill.contracts.job import Health
from indexmill.contracts.pipeline import STAGES
from indexmill.orchestrator.admission.admit import admission_tier
from indexmill.orchestrator.queries.jobs import reasons_by_stage
from indexmill.orchestrator.store.jobs import JobStore
from indexmill.orchestrator.store.rows import GlobalUsage
from indexmill.platform.aws.state_table import StoreClock, StoreUnavailable
from indexmill.platform.limits.enforcer import ActiveCallers, key_of, use_of
from indexmill.platform.limits.policy import READ, WORK, FairShareStrategy, LimitSettings, RateLimit
from indexmill.platform.limits.store import LimitStore, Shared
from indexmill.platform.limits.window import Window, active_callers
from indexmill.platform.time import Clock
from indexmill.version import VERSION

CACHED_S: Final = 10.0
_BUCKETS = (WORK, READ)


@dataclass(frozen=True, slots=True)
class ShowLimits:
    """GET /orchestrator/limits."""

    jobs: JobStore
    requests: LimitStore
    clock: StoreClock
    settings: LimitSettings
    shares: Mapping[str, FairShareStrategy | None]
    """By service."""

    def __call__(self, ctx: CallerContext) -> CallerLimits:
        """Return them; the request that asks is counted already."""
        tier = admission_tier(ctx)
        (usage, overall, pending), limits = self.jobs.read(
            lambda tx: (tx.usage(ctx.caller_id, tier), tx.limits)
        )
        return CallerLimits(
            caller_id=ctx.caller_id,
            tier=tier,
            granted_scopes=None if ctx.scopes is None else sorted(ctx.scopes),
            requests=self._windows(ctx),
            jobs=_quotas(limits.of(tier), usage, overall),
            pending=pending,
            max_pending=limits.max_pending,
            corpus_chunks=limits.of(tier).corpus_chunks,
        )

    def _windows(self, ctx: CallerContext) -> list[RequestWindow]:
        keys = {
            (service, bucket): key_of(service, bucket, ctx.caller_id)
            for service in self.shares
            for bucket in _BUCKETS
        }
        try:
            windows, shared = self.requests.read(list(keys.values()), list(self.shares))
        except StoreUnavailable:
            return [
                _shown(service, bucket, self._limit(ctx, service, bucket, None), None, 0.0)
                for service, bucket in keys
            ]
        now = self.clock.now()
        return [
            _shown(
                service,
                bucket,
                self._limit(ctx, service, bucket, shared[service]),
                windows.get(key, Window()),
                now,
            )
            for (service, bucket), key in keys.items()
        ]

    def _limit(
        self, ctx: CallerContext, service: str, bucket: str, shared: Shared | None
    ) -> RateLimit | None:
        active = partial(self._active, shared)
        return self.settings.strategy(service, self.shares[service], active).get_limit(ctx, bucket)

    def _active(self, shared: Shared | None, bucket: str) -> int | None:
        if shared is None:
            return None
        return active_callers(shared.active.get(bucket, {}), self.clock.now())


def _shown(
    service: str, bucket: str, limit: RateLimit | None, window: Window | None, now: float
) -> RequestWindow:
    use = use_of(window or Window(), now, limit) if limit else None
    known = use if window is not None else None
    return RequestWindow(
        service=service,
        bucket=bucket,
        limit=limit.most if limit else None,
        window_seconds=limit.window_seconds if limit else None,
        used=window.count(now, limit.window_seconds) if limit and window is not None else None,
        remaining=known.remaining if known else None,
        reset_s=known.reset_s if known else None,
        reason=limit.reason if limit else None,
    )


def _quotas(quota: Quota, usage: Usage, overall: GlobalUsage) -> list[JobQuota]:
    return [
        JobQuota(
            name=each.name,
            limit=each.most(quota),
            used=each.used(usage),
            reset_at=each.resets_at(usage, overall.now),
        )
        for each in START_QUOTAS
    ]


@dataclass(slots=True)
class ReadHealth:
    """Looks at most every `CACHED_S` seconds, however often it is asked: it needs no key."""

    store: JobStore
    active: ActiveCallers
    """Of the process: maintenance is what its requests are refused for."""
    clock: Clock
    release: str = ""
    _known: Health | TransientError | None = None
    _until_s: float = -math.inf

    def __call__(self) -> Health:
        """Return the health; raises TransientError(database_unavailable): then no job can be submitted."""
        if self.clock.monotonic() >= self._until_s:
            try:
                self._known = self._read()
            except TransientError as error:
                self._known = error
            self._until_s = self.clock.monotonic() + CACHED_S
        if isinstance(self._known, Health):
            return self._known
        assert self._known is not None  # noqa: S101 - for mypy: it was read above
        raise TransientError(self._known.code, self._known.message, retry_after=self._known.retry_after)

    def _read(self) -> Health:
        shared = self._read_limits()
        reasons, other_model = self.store.read(lambda tx: (reasons_by_stage(tx), tx.other_model()))
        degraded = "degraded" if reasons or not shared else "ok"
        return Health(
            status="maintenance" if self.active.maintenance is not None else degraded,
            version=VERSION,
            release=self.release,
            stages={stage.name: reasons.get(stage.name, "up") for stage in STAGES},
            limits="shared" if shared else "local",
            other_model=other_model,
            checked_at=self.clock.now(),
        )

    def _read_limits(self) -> bool:
        """Read what concerns every caller; return whether limits are shared."""
        try:
            self.active.refresh(0.0)
        except StoreUnavailable:
            return False
        return True
