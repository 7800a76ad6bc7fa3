"""States of sites in memory, and a pace without limits."""

from __future__ import annotations

import threading

from indexmill.platform.limits.clock import StoreClock
from indexmill.platform.limits.store import StoreUnavailable
from indexmill.platform.quotas import DomainRates
from indexmill.platform.time import Clock
from indexmill.scraper.rate_limit import RateLimiter
from indexmill.scraper.token_bucket import HostState


class InMemoryHosts:
    """Compares and sets as DynamoDB does. Docstrings are the port's."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[int, HostState]] = {}
        self.unavailable = False
        self.writes = 0
        self._lock = threading.Lock()

    def replace(self, site: str, version: int, new: HostState) -> tuple[int, HostState] | None:
        if self.unavailable:
            raise StoreUnavailable
        with self._lock:
            known = self.items.get(site, (0, HostState()))
            if known[0] != version:
                return known
            self.items[site] = (version + 1, new)
            self.writes += 1
            return None


def unlimited_pace(clock: Clock) -> RateLimiter:
    """Return a pace that holds back nothing."""
    return RateLimiter(DomainRates(), InMemoryHosts(), StoreClock(clock))
