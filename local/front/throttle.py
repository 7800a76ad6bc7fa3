"""Per-method throttling: a token bucket for each method of each resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from local.template.spec import Throttle


class Throttles:
    """Token buckets by route. Settings are keyed `"METHOD /path"`, or `"*"` for every method without its own.

    As in a stage's method settings, the default limits each method by itself, not all of them together.
    """

    def __init__(self, settings: Mapping[str, Throttle], monotonic: Callable[[], float]) -> None:
        self._settings = settings
        self._monotonic = monotonic
        self._buckets: dict[str, tuple[float, float]] = {}

    def allow(self, method: str, path: str) -> bool:
        """Take one token; return False when there is none."""
        if not self._settings:
            return True
        name = f"{method} {path}"
        limit = self._settings.get(name) or self._settings.get("*")
        if limit is None:
            return True
        now = self._monotonic()
        tokens, at = self._buckets.get(name, (float(limit.burst), now))
        tokens = min(float(limit.burst), tokens + (now - at) * limit.rate)
        allowed = tokens >= 1
        self._buckets[name] = (tokens - 1 if allowed else tokens, now)
        return allowed
